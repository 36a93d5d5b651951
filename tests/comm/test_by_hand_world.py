"""What workers that were started by hand have of the control plane that launched jobs have."""

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from paceline.errors import EXIT_PREEMPTED, EXIT_UNAVAILABLE
from ports import HoldPorts
from programs import LIMIT_SECONDS, Program, start_python

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("by_hand_world_rank.py")

Start = Callable[..., list[Program]]


@pytest.fixture
def start(tmp_path: Path, hold_ports: HoldPorts) -> Iterator[Start]:
    started: list[Program] = []

    def start(how: str, **variables: str) -> list[Program]:
        ports = ",".join(map(str, hold_ports(2)))
        started.extend(
            start_python(SCRIPT, str(index), ports, how, folder=tmp_path, variables=variables) for index in range(2)
        )
        return started

    yield start
    for program in started:
        program.kill()


def until_joined(programs: Sequence[Program]) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not all("joined" in program.output() for program in programs):
        assert time.monotonic() < give_up_at, "\n".join(program.output() for program in programs)
        time.sleep(0.02)


def test_ranks_that_hang_write_their_stacks_and_end(start: Start) -> None:
    ended = [program.ended() for program in start("hangs", PACELINE_HANG_TIMEOUT="8")]
    for rank, one in enumerate(ended):
        assert one.code != 0, one.output
        assert f"no step for too long; rank {rank} (" in one.output
        assert 'by_hand_world_rank.py", line' in one.output, "the stacks"
        [last] = one.lines(f"paceline: rank {rank} (")
        assert "no step for 8 s after step 3; the others wait for rank 1" in last
        assert "rank 0 waits in collective" in last
        # Of rank 1 it said "is in no collective", and the line was somewhere in the stacks of a dozen threads.
        assert re.search(r"rank 1 is in no collective, after \d+, at by_hand_world_rank\.py:\d+", last), last
        assert last.endswith("Start all ranks again with the same commands. [hang]")


@pytest.mark.parametrize("told", [0, 1])
def test_a_rank_that_is_told_to_stop_outside_of_a_fit_takes_the_others_along(start: Start, told: int) -> None:
    """A process that ended by `raise SystemExit` told nobody, and waited in `MPI_Finalize` for the others."""
    programs = start("between")
    until_joined(programs)
    programs[told].process.send_signal(signal.SIGTERM)
    ended = [program.ended() for program in programs]
    assert [one.code for one in ended] == [EXIT_PREEMPTED] * 2, "\n".join(one.output for one in ended)
    assert "was told to stop, as another rank was" in ended[1 - told].output


def test_a_worker_ends_with_its_agent_and_says_so(start: Start) -> None:
    """It stayed, and waited in a collective for ranks that were gone."""
    programs = start("waits")
    until_joined(programs)
    [agent] = psutil.Process(programs[1].process.pid).children()
    agent.kill()
    orphan, other = programs[1].ended(), programs[0].ended()
    assert orphan.code == EXIT_UNAVAILABLE
    assert orphan.output.strip().endswith("[agent-lost]")
    assert other.code != 0
    assert "because rank 1 (" in other.output
    assert "is gone" in other.output
