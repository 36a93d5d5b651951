"""Starting one process per host of a lab by hand, as a user does with TF_CONFIG, and reading what they say."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import TCP_ONLY, Lab

from programs import LIMIT_SECONDS, Program

PORT = 3000
TRAINING_RANK = Path(__file__).with_name("training_rank.py")


def tf_config(hosts: Sequence[str], index: int) -> str:
    workers = [f"{host}:{PORT}" for host in hosts]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})


def start_by_hand(
    lab: Lab,
    script: Path,
    *arguments: str | Path,
    variables: Mapping[str, str] | None = None,
    hosts: Sequence[str] | None = None,
) -> list[Program]:
    """Starts `script` on every host of `lab`, with a TF_CONFIG of `hosts` (the lab's own names without it)."""
    settings = {"PYTHONUNBUFFERED": "1", "PACELINE_START_TIMEOUT": "120", **TCP_ONLY, **(variables or {})}
    return [
        lab.start(
            host,
            [sys.executable, script, *arguments],
            {**settings, "TF_CONFIG": tf_config(hosts or lab.hosts, index)},
        )
        for index, host in enumerate(lab.hosts)
    ]


def wait_for_output(programs: Sequence[Program], text: str, limit_seconds: float = LIMIT_SECONDS) -> None:
    """Returns once every program has printed `text`.

    Raises:
        AssertionError: one ended, or the time was over, before it did.
    """
    give_up_at = time.monotonic() + limit_seconds
    for program in programs:
        while text not in (said := program.output()):
            if program.process.poll() is not None:
                everything = "\n".join(one.output() for one in programs)
                raise AssertionError(f"ended without {text!r}:\n{everything}")
            assert time.monotonic() < give_up_at, f"no {text!r} within {limit_seconds} s:\n{said}"
            time.sleep(0.02)
