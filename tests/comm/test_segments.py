"""`/dev/shm`: nothing of ours stays in it, however the ranks end, and one that is too small is not written into."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ranks import RankResult, run_ranks, start_ranks

_SCRIPT = Path(__file__).with_name("segments_rank.py")
_SHARED_MEMORY = Path("/dev/shm")
_IN_A_SMALL_ONE = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4m none /dev/shm && exec "$@"', "sh")


def _report(result: RankResult) -> tuple[str, list[str]]:
    name, paths = json.loads(result.stdout.splitlines()[0])
    return name, paths


def _left_over(results: list[RankResult], store_name: str) -> set[str]:
    """Files of these ranks that still have a name; others' jobs on this machine come and go."""
    of_ranks = {path for result in results for path in _report(result)[1]}
    present = {path.name for path in _SHARED_MEMORY.iterdir()}
    return (of_ranks & present) | {name for name in present if store_name in name}


@pytest.mark.processes
def test_nothing_stays_after_an_exit_in_order() -> None:
    with start_ranks(_SCRIPT, 2, "leave") as ranks:
        results = ranks.wait(timeout_seconds=60)
        assert [result.exit_code for result in results] == [0, 0], "\n".join(map(str, results))
        assert all(_report(result)[1] for result in results), "no rank has mapped anything: the test sees nothing"
        assert not _left_over(results, ranks.store_name)


@pytest.mark.processes
def test_nothing_stays_after_kill_9_in_the_middle_of_a_collective() -> None:
    with start_ranks(_SCRIPT, 3, "stay") as ranks:
        for rank in range(3):
            ranks.wait_for_output(rank, "round")
        ranks.kill()
        results = ranks.wait(timeout_seconds=60)
        assert [result.exit_code for result in results] == [-9, -9, -9]
        assert all(_report(result)[0] == "SharedMemoryGroup" for result in results)
        assert not _left_over(results, ranks.store_name)


def _can_mount() -> bool:
    return (
        bool(shutil.which("unshare"))
        and subprocess.run([*_IN_A_SMALL_ONE, "true"], capture_output=True, check=False, timeout=60).returncode == 0
    )


@pytest.mark.processes
def test_a_small_one_is_noticed_and_ranks_talk_over_tcp() -> None:
    if not _can_mount():
        pytest.skip("needs the right to mount a small /dev/shm in a namespace of its own")
    results = run_ranks(_SCRIPT, 2, "leave", timeout_seconds=60, wrapper=_IN_A_SMALL_ONE)
    story = "\n".join(map(str, results))
    assert [result.exit_code for result in results] == [0, 0], story
    assert [_report(result)[0] for result in results] == ["MpiGroup"] * 2
    assert all("/dev/shm has only 4 MB free" in result.stderr for result in results), story
