"""Ranks that end in any way, in any phase of a training: no hang, and the launcher names the right rank."""

import random
from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("departing_rank.py")

PLACES = ["import", "before fit", "first step", "mid-epoch", "validation", "between fits", "saving", "end"]
WITH_0 = ["_exit(0)", "exit(0)", "thread _exit(0)"]
WITH_OTHERS = ["_exit(3)", "thread SIGKILL", "SIGKILL", "SIGSEGV", "raise", "sys.exit(3)"]


def _drawn(number: int) -> tuple[str, str, int]:
    """Place, way and rank."""
    draw = random.Random(number)
    return draw.choice(PLACES), draw.choice(WITH_0 if draw.random() < 0.5 else WITH_OTHERS), draw.randrange(2)


@pytest.mark.parametrize(
    ("where", "how", "rank"),
    [
        ("mid-epoch", "_exit(0)", 1),
        pytest.param("between fits", "thread _exit(0)", 0, marks=pytest.mark.proof),
        pytest.param("end", "exit(0)", 1, marks=pytest.mark.proof),
        *(pytest.param(*_drawn(number), marks=pytest.mark.proof, id=f"drawn-{number}") for number in range(100)),
    ],
)
def test_the_rank_that_went_is_named_and_nobody_waits_for_it(tmp_path: Path, where: str, how: str, rank: int) -> None:
    """Only codes other than 0 ended the job: the others waited in their next collective for ever."""
    ended = run_workers(2, SCRIPT, where, how, str(rank), folder=tmp_path)
    said = (where, how, rank, ended.output)
    if where == "saving" and ended.code == 0:
        return  # the other rank was the one that writes
    last = ended.lines("paceline: ")[-1]
    assert last.startswith(f"paceline: rank {rank} ("), said
    assert ended.lines()[-1].endswith("]"), said  # the words of sys.exit() stand below the rank, on lines of their own
    # The other rank may have waited already: then the line says so behind the code.
    assert how != "sys.exit(3)" or ("failed with exit code 3" in last and last.endswith(":")), said
    if how in WITH_0:
        assert "ended with code 0" in last, said
        assert last.endswith("[worker-left]"), said
    if how in WITH_0 and where in ("mid-epoch", "validation"):  # nothing is known of a fit before its first trace
        assert "in the middle of training" in last, said


@pytest.mark.proof
def test_scripts_that_skip_the_interpreters_end_on_all_ranks_succeed(tmp_path: Path) -> None:
    """The chief, which had more to do, might have been taken for one that waits."""
    ended = run_workers(2, SCRIPT, "end", "_exit(0)", "every", folder=tmp_path)
    assert ended.code == 0, ended.output
    assert "without leaving" not in ended.output
