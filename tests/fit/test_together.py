"""Ranks decide, notice and end together; the cases are in `together_jobs.py`, and warm worlds run them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from programs import run_workers
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "together_jobs.py"
LIMIT_SECONDS = 600.0
ON_TWO = (2, pytest.param(3, marks=pytest.mark.proof))
"""Nothing in it rests on how many ranks there are."""


class Results:
    """What each rank's case returned, on so many workers; a case runs when it is first asked for."""

    def __init__(self, worlds: Worlds) -> None:
        self._worlds = worlds
        self._of_cases: dict[tuple[int, str], list[Any]] = {}

    def of_ranks(self, size: int, case: str) -> list[Any]:
        if (size, case) not in self._of_cases:
            self._of_cases[size, case] = self._worlds.of(size).run(SCRIPT, case).told
        return self._of_cases[size, case]

    def alone(self, case: str) -> Any:
        """As a job of one worker does it."""
        return self.of_ranks(1, case)[0]


@pytest.fixture(scope="module")
def results(worlds: Worlds) -> Results:
    return Results(worlds)


def _same_on_all(results: Results, size: int, case: str) -> Any:
    chiefs, *others = results.of_ranks(size, case)
    for theirs in others:
        assert _without_node_numbers(theirs) == _without_node_numbers(chiefs)
    return chiefs


def _without_node_numbers(found: Any) -> str:
    """TensorFlow counts nodes and functions by process, and its messages name them: `cond_false_4415`."""
    return re.sub(r"([A-Za-z])_\d+\b", r"\1", json.dumps(found))


@pytest.mark.parametrize(
    ("case", "steps", "epochs"),
    [
        ("one_rank_stops", 3, 1),
        ("one_rank_changes_the_learning_rate", 10, 2),
        ("one_rank_raises_stop_iteration", 3, 1),
        ("the_last_ranks_data_ends_early", 6, 2),
    ],
)
@pytest.mark.parametrize("size", ON_TWO)
def test_what_one_rank_decides_all_ranks_do_at_the_same_step(
    results: Results, size: int, case: str, steps: int, epochs: int
) -> None:
    found = _same_on_all(results, size, case)
    assert (found["steps"], found["epochs"]) == (steps, epochs)
    assert found.get("rate", 0.5) == 0.5


@pytest.mark.parametrize("size", ON_TWO)
def test_an_ordinary_callback_costs_one_collective_a_batch(results: Results, size: int) -> None:
    assert _same_on_all(results, size, "collectives_that_ordinary_callbacks_cost") == [1, 1]


@pytest.mark.parametrize("size", ON_TWO)
def test_a_step_that_not_all_ranks_take_leaves_behind_what_the_end_of_one_workers_data_does(
    results: Results, size: int
) -> None:
    """Each end of data of unknown length counts a step, as in plain Keras; on all ranks, whoever's data has ended."""
    assert _same_on_all(results, size, "the_last_ranks_data_ends_early")["iterations"] == 6 + 2


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
@pytest.mark.parametrize("by", [2, pytest.param(3, marks=pytest.mark.proof)])
def test_data_that_end_within_an_execution_end_it_on_all_ranks(results: Results, size: int, by: int) -> None:
    case = f"data_ends_within_an_execution_of_{by}"
    one, found = results.alone(case), _same_on_all(results, size, case)
    alike, expected = dict(found["alike"]), dict(one["alike"])
    assert alike.pop("weights") == pytest.approx(expected.pop("weights"), rel=1e-9)
    assert alike == expected
    # Of the second epoch, too, 3 batches: whole executions have logs.
    assert found["early"]["steps"] == 2 * (3 // by)
    assert found["early"]["iterations"] == 2 * 3
    assert found["early"]["evaluated"]


@pytest.mark.parametrize("size", ON_TWO)
def test_own_batches_that_cannot_be_empty_end_on_all_ranks_with_the_first(results: Results, size: int) -> None:
    found = _same_on_all(results, size, "own_batches_without_an_axis_of_rows_end_within_an_execution")
    assert np.isfinite(found["weights"]).all()


@pytest.mark.parametrize("size", ON_TWO)
def test_a_rank_without_images_of_unknown_size_takes_another_ranks_size(results: Results, size: int) -> None:
    found = _same_on_all(results, size, "images_of_unknown_size_on_some_ranks_only")
    assert found["steps"] == 2 * 3
    assert np.isfinite(found["weights"]).all()


@pytest.mark.parametrize("size", ON_TWO)
def test_ranks_that_trace_different_steps_are_told_where(results: Results, size: int) -> None:
    """Each would have divided a step of its own: other numbers, or messages that do not meet."""
    constant, printing = _same_on_all(results, size, "steps_that_ranks_trace_differently")
    assert constant.startswith("DesynchronizedError: the ranks have traced different steps of train_step")
    assert constant.count("Const in together_jobs.py:") == 2
    assert printing.startswith("DesynchronizedError: the ranks have traced different steps of train_step")
    assert "in together_jobs.py:" in printing


@pytest.mark.parametrize("size", ON_TWO)
def test_a_step_is_traced_once_unless_it_makes_metrics(results: Results, size: int) -> None:
    assert _same_on_all(results, size, "traces_of_a_step") == {"loss": 1, "accuracy": 2}


@pytest.mark.parametrize("size", ON_TWO)
def test_data_distributed_by_the_script_are_known_as_such(results: Results, size: int) -> None:
    assert _same_on_all(results, size, "data_distributed_by_the_script") == [True, 10, 10]


@pytest.mark.parametrize("size", ON_TWO)
def test_a_nan_in_one_ranks_rows_terminates_all(results: Results, size: int) -> None:
    assert _same_on_all(results, size, "nan_in_the_last_ranks_rows_terminates_all") == 3


@pytest.mark.parametrize("size", ON_TWO)
def test_a_rank_with_fewer_batches_goes_on_without_rows(results: Results, size: int) -> None:
    found = _same_on_all(results, size, "ranks_feed_different_numbers_of_batches")
    assert found["steps"] == 2 * (2 + size - 1)
    assert np.isfinite(found["weights"]).all()


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
def test_predictions_end_with_the_rank_that_has_most(results: Results, size: int) -> None:
    found = _same_on_all(results, size, "predictions_from_own_data_of_unknown_length")
    by_hand = found.pop("sharded by hand by 1")
    assert found.pop("sharded by hand by 2") == by_hand
    everything = [100 * rank + row for rank in range(size) for row in range(4 * rank + 4)]
    assert sorted(by_hand) == everything
    for by in (1, 2):
        assert sorted(found[f"marked by {by}"]) == everything
        assert found[f"marked by {by}"][: 4 * size] == [100 * rank + row for rank in range(size) for row in range(4)]
        assert sorted(found[f"of scalars, too by {by}"]) == [
            100 * rank + row for rank in range(size) for row in range(4)
        ]


@pytest.mark.parametrize("size", ON_TWO)
def test_predictions_of_every_kind_are_one_workers(results: Results, size: int) -> None:
    assert _same_on_all(results, size, "predictions_of_every_kind") == results.alone("predictions_of_every_kind")


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
def test_moving_statistics_are_one_workers_after_each_step(results: Results, size: int) -> None:
    found, one = (np.array(_same_on_all(results, number, "moving_statistics")) for number in (size, 1))
    np.testing.assert_allclose(found, one, rtol=1e-9)


@pytest.mark.parametrize("size", ON_TWO)
def test_moving_statistics_of_a_custom_loop_are_alike(results: Results, size: int) -> None:
    found = _same_on_all(results, size, "moving_statistics_in_a_custom_loop")
    one = results.alone("moving_statistics_in_a_custom_loop")
    np.testing.assert_allclose(found[: len(one) // 2], one[: len(one) // 2], rtol=1e-9)


@pytest.mark.parametrize("size", ON_TWO)
@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("another_model_on_the_last_rank", ("kernel: (6, 5) float64 on rank 0", "(6, 7) float64 on rank {last}")),
        ("another_dtype_on_the_last_rank", ("data: float64 (6,)", "float32 (6,), int64 () on rank {last}")),
        ("other_step_counts_on_the_last_rank", ("number of batches", "5 on rank 0, 4 on rank {last}")),
        ("other_epochs_on_the_last_rank", ("epochs", "2] on rank 0", "3] on rank {last}")),
    ],
)
def test_ranks_that_run_different_jobs_are_told_both_values(
    results: Results, size: int, case: str, told: tuple[str, ...]
) -> None:
    message = _same_on_all(results, size, case)
    assert message.startswith(
        "DesynchronizedError: the ranks do not run the same job, so the job was stopped before the first step"
    )
    for part in told:
        assert part.format(last=size - 1) in message
    assert "Lines of the script: rank 0, " in message
    assert ": together_jobs.py:" in message


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
def test_batches_whose_first_axis_is_not_that_of_rows_are_trained_as_by_one_worker(results: Results, size: int) -> None:
    """Each rank took half of the pairs, and failed inside the user's step. Elements without rows are still refused."""
    for found in results.of_ranks(size, "batches_without_an_axis_of_rows"):
        codes = {name: re.findall(r"\[([a-z]+(?:-[a-z]+)?)\]$", message) for name, message in found.items()}
        single = {name for name in codes if name.startswith("single")} | {"scalars"}
        differing = {name for name in codes if name.startswith("differing")}
        expected = {name: [] for name in codes}
        expected |= {name: ["not-batched"] for name in single} | {name: ["rows-differ"] for name in differing}
        assert codes == expected, found
        assert {found[name] for name in codes if not expected[name]} == {"no error"}
        for name in single:
            assert found[name].startswith("ValueError: "), found[name]
        for name in differing:
            assert found[name].startswith("ValueError: the components of a batch have different lengths"), found[name]
        assert "data[0] (8, 6), data[1] (3,)" in found["differing, as read"]
        assert "x (40, 6), y (3,)" in found["differing, on_batch"]


@pytest.mark.parametrize("size", ON_TWO)
def test_steps_that_the_data_cannot_fill_are_refused_with_the_right_number(results: Results, size: int) -> None:
    for message in _same_on_all(results, size, "more_steps_than_the_data_has").values():
        assert message.startswith("ValueError: steps_per_epoch=9, but the data has only 5 batches")
        assert "steps_per_epoch=5" in message


@pytest.mark.parametrize("size", ON_TWO)
def test_a_model_that_makes_its_train_function_is_told_to_override_train_step(results: Results, size: int) -> None:
    """It was told to train with `model.fit`, which it did."""
    told = _same_on_all(results, size, "a_train_function_of_its_own")
    assert "OwnTrainFunction.make_train_function makes steps of its own" in told
    assert "Override train_step" in told


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
def test_the_chief_says_once_for_each_model_and_data_how_the_fit_will_run(results: Results, size: int) -> None:
    chief, *others = results.of_ranks(size, "the_first_line_of_fit")
    assert others == [[]] * (size - 1)
    line, of_other_batches, of_other_model = chief
    assert of_other_model == line
    assert of_other_batches.startswith(f"{size} replicas; global batch 4, ")
    rows = "3 to 4" if size == 2 else "2 to 3"
    assert line.startswith(f"{size} replicas; global batch 7, {rows} rows per replica; 6 steps an epoch; ")
    assert results.alone("the_first_line_of_fit") == []


@pytest.mark.parametrize("size", ON_TWO)
@pytest.mark.parametrize(
    "case",
    [
        "weights_that_a_layer_assigns",
        "weights_trained_in_a_branch",
        pytest.param("states_of_sequences", marks=pytest.mark.proof),
    ],
)
def test_what_follows_from_the_whole_batch_is_one_workers(results: Results, size: int, case: str) -> None:
    """Each rank once had a sum, a branch or a state of its own rows."""
    for one, other in zip(_same_on_all(results, size, case), results.alone(case), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("size", ON_TWO)
def test_strictly_a_callback_that_disagrees_is_named(results: Results, size: int) -> None:
    message = _same_on_all(results, size, "callbacks_that_disagree_strictly")
    assert message.startswith("DesynchronizedError: callbacks disagree between ranks in on_train_batch_end about")
    assert f"stop_training: only rank(s) {size - 1} decided so, by Steps (rank {size - 1})" in message


@pytest.mark.parametrize("size", ON_TWO)
def test_ranks_that_all_set_another_learning_rate_are_told_each_rate(results: Results, size: int) -> None:
    """The message looked for the ranks that had changed the rate, and all had: it named `stop_training` and no rank."""
    message = _same_on_all(results, size, "ranks_that_set_learning_rates_of_their_own")
    rates = ", ".join([*(f"{0.5 + rank:g}" for rank in range(size - 1)), "nan"])
    assert f"about the learning rate ({rates}): each rank has set its own, by LambdaCallback (rank 0)" in message


@pytest.mark.parametrize("size", ON_TWO)
def test_a_step_that_is_a_tf_function_counts_the_rows_of_each_batch(results: Results, size: int) -> None:
    found, one = _same_on_all(results, size, "run_of_a_tf_function"), results.alone("run_of_a_tf_function")
    np.testing.assert_allclose(found["means"], one["means"], rtol=1e-9)
    assert found["of_steps"] == pytest.approx(one["of_steps"], rel=1e-9)
    assert found["outside"] == 5.0


@pytest.mark.parametrize("size", ON_TWO)
def test_data_sharded_by_hand_take_as_many_steps_as_they_have(results: Results, size: int) -> None:
    found = _same_on_all(results, size, "data_sharded_by_hand")
    assert found["steps"] == {2: 8, 3: 12}[size]
    assert found["iterations"] == found["draws"] == found["steps"]


@pytest.mark.parametrize("size", ON_TWO)
def test_an_epoch_of_own_data_ends_when_no_rank_has_rows(results: Results, size: int) -> None:
    """Keras takes the first epoch's number of steps for the others'."""
    assert _same_on_all(results, size, "own_data_with_more_batches_in_later_epochs") == [2, 6, 8, 13]


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
def test_a_generator_is_read_as_far_ahead_on_every_rank(results: Results, size: int) -> None:
    """Ranks read ahead as far as their threads came to: from the second validation on, each had another batch."""
    found = _same_on_all(results, size, "generators_read_by_one_call_after_the_other")
    assert found["by 1"] == [
        *([-1], [0, 1, 2, 3], [-1], [0, 1, 5, 6], [-1], [0, 1, 8, 9]),  # 4, 7 and 10 were read ahead
        *([0, 1, 2, 3], [4, 5, 6, 7]),
        *([9, 10, 11, 12], [11, 12, 13, 14]),
        [14, 15, 16, 17],
        *([19, 20], [22, 16]),
    ]
    assert found["by 2"] == [
        *([-1], [1, 3], [-1], [1, 6], [-1], [1, 9]),
        *([1, 3], [5, 7]),
        *([10, 12], [12, 14]),
        [15, 17],
        *([19, 20], [22, 16]),
    ]


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
def test_a_generator_stands_alike_on_every_rank_after_a_fit_that_was_cut_short(results: Results, size: int) -> None:
    found = _same_on_all(results, size, "a_generator_whose_fit_ends_early")
    *others, used_up = found
    assert others == [
        *("no error", "ArithmeticError: ", 6),  # 2 and 5 were read ahead
        *([0, 1], [3]),
        *([*range(7, 20)], [7, 8]),  # Keras begins each epoch with the two that it has looked at
    ]
    assert used_up.startswith(("ValueError: When passing a Python genera", "IndexError: "))  # Keras's; older: Python's


@pytest.mark.proof
@pytest.mark.parametrize("size", ON_TWO)
def test_generators_that_shift_in_a_later_epoch_are_noticed(results: Results, size: int) -> None:
    for message in _same_on_all(results, size, "generators_that_shift_on_the_last_rank"):
        assert message.startswith("DesynchronizedError: the ranks read different data")


@pytest.mark.proof
@pytest.mark.parametrize(("size", "num_runs"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.proof)])
def test_unseeded_shuffles_give_each_row_to_one_rank_in_another_order_each_epoch(
    tmp_path: Path, size: int, num_runs: int
) -> None:
    script = Path(__file__).parent / "unseeded_shuffles.py"
    orders = []
    for run in range(num_runs):
        folder = tmp_path / str(run)
        folder.mkdir()
        ended = run_workers(size, script, folder, folder=folder, limit_seconds=LIMIT_SECONDS)
        assert ended.code == 0, ended.output
        of_ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(size)]
        for of_epoch in zip(*of_ranks, strict=True):
            assert sorted(row for rows in of_epoch for row in rows) == list(range(40))
        orders += [str(of_epoch) for of_epoch in zip(*of_ranks, strict=True)]
    assert len(set(orders)) == len(orders), "an epoch repeats the order of another, or a run that of another run"
