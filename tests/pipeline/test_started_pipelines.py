"""A pipeline that was started alone, by hand or by the launcher; a stage that fails; Ctrl-C and SIGTERM."""

import json
import signal
import time
from pathlib import Path

import pytest

from paceline.errors import EXIT_PREEMPTED
from ports import HoldPorts
from programs import Ended, run_python, run_workers, start_python

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

_SCRIPT = Path(__file__).with_name("started_job.py")
_SEED = {"PACELINE_SEED": "5"}


def _losses(*programs: Ended) -> str:
    """The same on both ranks."""
    told = [line.partition("END ")[2] for ended in programs for line in ended.output.splitlines() if "END " in line]
    assert len(told) == 2, [ended.output for ended in programs]
    assert told[0] == told[1]
    return told[0]


def test_alone_it_starts_a_worker_for_each_stage_and_a_layer_that_fails_ends_all(tmp_path: Path) -> None:
    alone = run_python(_SCRIPT, "ends", folder=tmp_path, limit_seconds=240, variables=_SEED)
    assert alone.code == 0, alone.output
    assert "PipelineStrategy over 2 stages: starting again as `paceline run --workers 2 " in alone.output
    _losses(alone)

    failed = run_workers(2, _SCRIPT, "fails", folder=tmp_path, limit_seconds=240)
    assert failed.code == 1, failed.output
    assert "this layer gives up" in failed.output, failed.output
    assert "rank 1 failed; stopping the job" in failed.output, failed.output
    assert "rank 0 was stopped because rank 1 failed" in failed.output, failed.output


@pytest.mark.proof
def test_a_rank_that_saves_alone_is_told_where(tmp_path: Path) -> None:
    told = run_workers(2, _SCRIPT, "saves alone", folder=tmp_path, limit_seconds=240)
    assert told.code == 1, told.output
    lines = _SCRIPT.read_text().splitlines()
    saved, fitted = lines.index('    model.save("alone.keras")') + 1, len(lines)
    assert f"rank 0: {_SCRIPT.name}:{saved}; rank 1: {_SCRIPT.name}:{fitted}. [collectives-differ]" in told.output


@pytest.mark.proof
def test_by_hand_it_computes_the_same(tmp_path: Path, hold_ports: HoldPorts) -> None:
    launched = run_workers(2, _SCRIPT, "ends", folder=tmp_path, limit_seconds=240, variables=_SEED)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in hold_ports(2)]}
    both = []
    for index in range(2):
        task = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        both.append(start_python(_SCRIPT, "ends", folder=tmp_path, variables={"TF_CONFIG": task, **_SEED}))
    by_hand = [program.ended(240) for program in both]
    assert [ended.code for ended in by_hand] == [0, 0], [ended.output for ended in by_hand]
    assert _losses(*by_hand) == _losses(launched)


@pytest.mark.proof
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, EXIT_PREEMPTED)])
def test_it_ends_when_told_to(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """All ranks after the same step, with a snapshot."""
    options = ("--workers", "2", "--snapshot-dir", str(tmp_path / "snapshots"), "--snapshot-every", "1000000")
    program = start_python("-m", "paceline", "run", *options, _SCRIPT, "goes on", folder=tmp_path)
    give_up_at = time.monotonic() + 240
    while "trains" not in program.output():
        assert time.monotonic() < give_up_at, program.kill()
        assert program.process.poll() is None, program.output()
        time.sleep(0.05)
    program.process.send_signal(number)
    ended = program.ended(120)
    assert ended.code == code, ended.output
    assert "all ranks stop after step" in ended.output, ended.output
