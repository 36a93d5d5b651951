"""What an agent over ssh runs is what the head was told, option by option."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.hosts import HostSlots
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import Use, rows
from paceline.launcher.hosts import remote_agent
from paceline.launcher.hosts.remote_agent import _job_of
from paceline.launcher.hosts.ssh_hosts import SshHosts
from paceline.launcher.job import JobDescription, Program
from paceline.rendezvous.agent_messages import Assignment, decode
from paceline.wire.codec import encode


def test_every_option_that_concerns_a_hosts_workers_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"PWD": str(tmp_path)})
    program = Program("t.module", ("--epochs", "3"), is_module=True)
    options = JobOptions(
        ps=2,
        data_workers=2,
        start_timeout_seconds=7.0,
        seed=7,
        bind="none",
        drop_in=False,
        allow_independent=True,
        verify="strict",
        batch_statistics="local",
        shares="3,1,2",
        rank_variables=True,
        communication="ring",
        strict=True,
        network_interface="eth0,eth1",
        snapshot_dir="/a folder/s",
        observe=Path("/a folder/seen"),
        timeline="3:7",
        snapshot_every="2.5s",
        snapshot_keep="4",
        hang_timeout_seconds=7.5,
        standby=True,
        debug_rank=1,
        debug_port=5678,
        chaos=("kill:rank=1,step=50", "term:step=60"),
    )
    job = JobDescription(
        command=program.command(),
        num_workers=3,
        environment={"PWD": str(tmp_path), "TF_X": "1"},
        options=options,
        program=program,
        hosts=(HostSlots("a", 3),),
    )
    nothing: Any = None
    assignment = decode(encode(SshHosts(asyncio.new_event_loop(), job, nothing, print)._assignment(3)))
    assert isinstance(assignment, Assignment)
    os.environ["PACELINE_BIND"] = "cores"  # of the host's own login
    there = _job_of(assignment)
    assert (there.command, there.num_workers, there.program) == (job.command, 3, program)
    for option in rows(JobOptions):
        if option.use is not Use.HEAD:
            assert getattr(options, option.attribute) != option.default, f"give {option.name} here, too"
            assert getattr(there.options, option.attribute) == getattr(options, option.attribute)
        else:
            assert getattr(there.options, option.attribute) == option.default


def test_an_agent_whose_store_or_driver_does_not_answer_leaves_with_its_head() -> None:
    answers = threading.Event()

    class Line:
        """A head that goes at once."""

        def attach(self, on_message: object, on_lost: Callable[[str], None]) -> None:
            on_lost("is gone")

    line: Any = Line()
    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(asyncio.wait_for(remote_agent._found_out(answers.wait, line), 30))
    finally:
        answers.set()
