"""Jobs of real processes on loopback; whatever a test does, nothing of them outlives it."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.rendezvous.attaching import AGENT_END_SECONDS
from ports import HoldPorts
from process_table import SOON_SECONDS, Seen, end_all, marked, until_gone

_RANK_SCRIPT = Path(__file__).with_name("by_hand_rank.py")
_MARK = "PACELINE_TEST_JOB"


class Rank:
    """A process that runs ``by_hand_rank.py``."""

    def __init__(self, process: subprocess.Popen, errors: Path) -> None:
        self.process = process
        self._errors = errors

    def read(self, deadline_seconds: float = SOON_SECONDS) -> dict:
        """The next object that it prints."""
        ready, _, _ = select.select([self.process.stdout], [], [], deadline_seconds)
        line = self.process.stdout.readline() if ready else b""
        assert line, f"printed nothing in {deadline_seconds} s; stderr:\n{self.errors()}"
        return json.loads(line)

    def wait(self, deadline_seconds: float = SOON_SECONDS) -> int:
        """Its exit code."""
        return self.process.wait(deadline_seconds)

    def errors(self) -> str:
        """What is on its stderr, its agent's lines included."""
        return self._errors.read_text()

    def until_error(self, text: str, deadline_seconds: float = SOON_SECONDS) -> None:
        """Returns once `text` is on its stderr."""
        deadline = time.monotonic() + deadline_seconds
        while text not in self.errors():
            assert time.monotonic() < deadline, f"{text!r} is not in {self.errors()!r}"
            time.sleep(0.02)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)


class Job:
    """Starts ranks of one cluster on free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.mark = uuid.uuid4().hex
        self._ranks: list[Rank] = []

    def start(
        self,
        index: int,
        addresses: list[tuple[str, int]],
        then: str = "leave",
        seconds: float = 120.0,
        versions: dict[str, str] | None = None,
        hostname: str = "",
        agent_end_seconds: float = AGENT_END_SECONDS,
        **variables: str,
    ) -> Rank:
        what = {
            "index": index,
            "addresses": addresses,
            "then": then,
            "seconds": seconds,
            "versions": versions or {"Keras": "3"},
            "seed": 100 + index,
            "hostname": hostname,
            "agent_end_seconds": agent_end_seconds,
        }
        errors = self._folder / f"stderr_{len(self._ranks)}"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, _RANK_SCRIPT, json.dumps(what)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, **variables, _MARK: self.mark},
                bufsize=0,
            )
        self._ranks.append(Rank(process, errors))
        return self._ranks[-1]

    def until_gone(self) -> list[Seen]:
        """What does not go: ranks, agents, whatever they started."""
        return until_gone(lambda: marked(_MARK, self.mark))

    def end(self) -> None:
        for rank in self._ranks:
            rank.process.kill()
            rank.process.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    try:
        yield job
    finally:
        job.end()
        left_over = job.until_gone()
        end_all(_MARK, job.mark)
        assert not left_over


@pytest.fixture
def addresses(hold_ports: HoldPorts) -> list[tuple[str, int]]:
    """Three free addresses on loopback, which nobody else is given."""
    return [("127.0.0.1", port) for port in hold_ports(3)]
