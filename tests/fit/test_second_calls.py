"""A second `fit`, `evaluate` or `predict`, on one worker and on several."""

import json
from pathlib import Path

import pytest

from programs import Ended, run_workers
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "second_call_jobs.py"


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.proof), 2])
def test_a_model_that_was_loaded_from_its_file_trains_on(worlds: Worlds, size: int) -> None:
    [plain] = worlds.plain.run(SCRIPT, "a_loaded_model_trains_on").told
    got = worlds.of(size).run(SCRIPT, "a_loaded_model_trains_on").same
    assert got["iterations"] == plain["iterations"] == 16
    assert got["losses"] == pytest.approx(plain["losses"], rel=1e-5)


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.proof), 2])
def test_each_call_begins_one_batch_behind_those_that_the_call_before_has_used(worlds: Worlds, size: int) -> None:
    # Plain Keras does so in most runs: its thread may have read one more.
    got = worlds.of(size).run(SCRIPT, "one_generator_is_predicted_and_evaluated_from").same
    assert got["predicted"] == [[first + number for number in range(5)] for first in (0.0, 6.0, 12.0)]
    assert got["sums"] == pytest.approx([100.0, 130.0, 160.0])
    assert got["next"] == 36.0


@pytest.mark.proof
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_shuffle_below_repeat_goes_on_where_the_steps_have_come_to(worlds: Worlds, size: int) -> None:
    """A shuffle drew its next seed when reading ahead reached a repetition's end, which each rank did by itself."""
    expected = {
        "AUTOTUNE": [1, 1, 1, 1, 1, 2, 3, 4],
        "none": [1, 2],
        "two": [1, 1, 2, 2],
        "repeated batches": [1, 2],
        "mapped": [1, 1, 2],
        "finite": [1, 2],
        "shuffled again": [1, 2],
        "several calls": [7],
    }
    case = "repeated_shuffles_are_read_by_several_calls"
    [plain] = worlds.plain.run(SCRIPT, case).told
    del plain["AUTOTUNE"]  # plain Keras reads one batch ahead in most runs, and more in some
    assert plain["none"] == expected["none"]
    for name, orders in plain.items():  # on a busy machine, plain Keras's thread may not have come as far
        assert all(one <= most for one, most in zip(orders, expected[name], strict=True)), name
    assert worlds.of(size).run(SCRIPT, case).same == expected


@pytest.mark.proof
def test_a_second_fit_on_a_repeated_shuffle_resumes_with_its_orders(tmp_path: Path) -> None:
    """A fit that was passed over drew one seed of a shuffle below `repeat`, however many repetitions it had begun."""
    script = Path(__file__).with_name("repeated_job.py")
    undisturbed = run_workers(2, script, folder=tmp_path, limit_seconds=400)
    snapshots = ("--snapshot-dir", str(tmp_path / "run"), "--snapshot-every", "1000", "--max-restarts", "1")
    killed = run_workers(2, *snapshots, "--chaos", "kill:rank=1,step=26", script, folder=tmp_path, limit_seconds=400)
    assert "call 1 of fit had finished after step 18" in killed.output, killed.output
    assert _end_of(killed) == _end_of(undisturbed)


@pytest.mark.proof
@pytest.mark.parametrize("size", [1, 2])
def test_whole_epochs_of_a_finite_repeat_have_the_orders_of_plain_keras(worlds: Worlds, size: int) -> None:
    """A `repeat` that is read to its end has made an iterator more than it has repetitions: that drew no seed."""
    case = "finite_repeats_are_read_to_their_ends"
    [plain] = worlds.plain.run(SCRIPT, case).told
    same = worlds.of(size).run(SCRIPT, case).same
    assert same.keys() == plain.keys()
    for name, (losses, rows) in plain.items():
        assert same[name][0] == pytest.approx(losses, rel=1e-5), name  # of float32; another order is 1e-2 apart
        assert same[name][1] == rows, name


@pytest.mark.proof
def test_finite_repeats_go_on_with_their_orders_on_another_number_of_workers(tmp_path: Path) -> None:
    """Each earlier iterator drew one seed, however often it repeats, in the `fit` that goes on and the one before."""
    script = Path(__file__).with_name("finite_repeats_job.py")
    undisturbed = run_workers(1, script, folder=tmp_path, limit_seconds=400)
    snapshots = ("--snapshot-dir", str(tmp_path / "run"), "--snapshot-every", "2")
    killed = run_workers(2, *snapshots, "--chaos", "kill:rank=1,step=37", script, folder=tmp_path, limit_seconds=400)
    assert killed.code != 0, killed.output
    resumed = run_workers(1, *snapshots, script, folder=tmp_path, limit_seconds=400)
    assert "call 1 of fit had finished after step 24" in resumed.output, resumed.output
    assert "resuming from the snapshot of step 3" in resumed.output, resumed.output
    numbers, expected = (json.loads(_end_of(ended)) for ended in (resumed, undisturbed))
    assert numbers == pytest.approx(expected, rel=1e-9)


def _end_of(ended: Ended) -> str:
    assert ended.code == 0, ended.output
    [end] = {line.partition("END ")[2] for line in ended.output.splitlines() if "END " in line}
    return end
