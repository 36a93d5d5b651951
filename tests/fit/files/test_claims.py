"""One writer per file: the claims of ranks that are threads or processes, without TensorFlow."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.fit.files.claims import Claims

NAMES = ("/models/a.keras", "/models/b.keras")
MOMENTS = ("m1", "m2")
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(MOMENTS)), max_size=6)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("claims")
    return iter(root / str(number) for number in range(1_000_000))


def _write(claims: Claims, name: str, moment: str) -> bool:
    with claims.claimed(name, moment) as is_ours:
        return is_ours


@UNHURRIED
@given(calls=st.lists(CALLS, min_size=1, max_size=4), data=st.data())
def test_in_any_order_each_save_is_written_by_the_first_rank_that_comes_to_it(
    folders: Iterator[Path], calls: list[list[tuple[str, str]]], data: st.DataObject
) -> None:
    ranks = [(Claims(folder), list(own)) for folder in [next(folders)] for own in calls]
    made: Counter[tuple[int, str, str]] = Counter()
    written: Counter[tuple[str, str]] = Counter()
    while left := [index for index, (_, own) in enumerate(ranks) if own]:
        index = data.draw(st.sampled_from(left))
        claims, own = ranks[index]
        name, moment = own.pop(0)
        made[index, name, moment] += 1
        is_first = made[index, name, moment] > written[name, moment]
        assert _write(claims, name, moment) is is_first
        written[name, moment] += is_first
    for (name, moment), count in written.items():
        assert count == max(made[index, name, moment] for index in range(len(ranks)))


@UNHURRIED
@given(num_failing=st.integers(0, 4), num_ranks=st.integers(1, 4))
def test_a_writer_that_fails_leaves_the_file_to_the_next(
    folders: Iterator[Path], num_failing: int, num_ranks: int
) -> None:
    folder = next(folders)
    outcomes = []
    for number in range(num_ranks):
        try:
            with Claims(folder).claimed(NAMES[0], MOMENTS[0]) as is_ours:
                if is_ours and number < num_failing:
                    raise OSError("no space left")
                outcomes.append("written" if is_ours else "found")
        except OSError:
            outcomes.append("failed")
    expected = ["failed"] * num_failing + ["written"] + ["found"] * num_ranks
    assert outcomes == expected[:num_ranks]


@UNHURRIED
@given(calls=CALLS)
def test_ranks_take_the_first_ones_value(folders: Iterator[Path], calls: list[tuple[str, str]]) -> None:
    folder = next(folders)
    first, other = Claims(folder), Claims(folder)
    for number, (name, moment) in enumerate(calls):
        assert first.agreed(name, moment, f'{{"loss": {number}}}') == f'{{"loss": {number}}}'
    for number, (name, moment) in enumerate(calls):
        assert other.agreed(name, moment, "{}") == f'{{"loss": {number}}}'


def test_of_threads_that_come_at_once_one_writes_and_all_find_the_whole_file(tmp_path: Path) -> None:
    num_ranks, num_saves = 6, 40
    file = tmp_path / "file"
    inside, crowds, torn, writers = [0], [], [], Counter()
    together = threading.Barrier(num_ranks)

    def rank() -> None:
        claims = Claims(tmp_path / "ledgers")
        together.wait(20)
        for save in range(num_saves):
            with claims.claimed(str(file), f"m{save}") as is_ours:
                inside[0] += 1
                crowds.append(inside[0])
                if is_ours:
                    writers[save] += 1
                    file.write_text("half ")
                    file.write_text(f"half {save}")
                inside[0] -= 1
            with claims.alone(str(file)):
                text = file.read_text()
            if not text.startswith("half ") or int(text.split()[1]) < save:
                torn.append((save, text))

    with ThreadPoolExecutor(num_ranks) as pool:
        for done in [pool.submit(rank) for _ in range(num_ranks)]:
            done.result(60)
    assert set(crowds) == {1}
    assert not torn
    assert writers == dict.fromkeys(range(num_saves), 1)


HOLDER = """
import sys
from pathlib import Path
from paceline.fit.files.claims import Claims
with Claims(Path(sys.argv[1])).claimed("file", "moment") as is_ours:
    print(is_ours, flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
def test_a_killed_writer_holds_nobody(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(_write, Claims(tmp_path), "file", "moment")
            holder.kill()
            assert waiting.result(20) is True, "it has to write what the other did not come to"
    assert _write(Claims(tmp_path), "file", "moment") is False


@pytest.mark.processes
def test_a_child_that_was_forked_while_its_parent_wrote_holds_nobody(tmp_path: Path) -> None:
    with Claims(tmp_path).claimed("file", "moment"):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writes)
            os.read(reads, 1)
            os._exit(0)
        os.close(reads)
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_write, Claims(tmp_path), "file", "moment").result(20) is False
    finally:
        os.close(writes)
        os.waitpid(child, 0)


def test_a_directory_that_was_cleaned_away_is_made_anew(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "ledgers")
    assert _write(claims, "file", "moment")
    for path in (tmp_path / "ledgers").iterdir():
        path.unlink()
    (tmp_path / "ledgers").rmdir()
    assert _write(claims, "file", "moment")
    assert (tmp_path / "ledgers").stat().st_mode & 0o777 == 0o700
