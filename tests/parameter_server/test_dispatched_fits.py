"""`fit`, `evaluate` and `predict` under parameter servers: what is counted is exact, and nothing is seen twice."""

import re
from pathlib import Path

import numpy as np
import pytest

from paceline.parameter_server.generator_states import moved_on
from worlds import Worlds

CASES = Path(__file__).with_name("dispatched_cases.py")


@pytest.mark.processes
@pytest.mark.parametrize("steps_per_execution", [pytest.param(1, marks=pytest.mark.proof), 4])
def test_steps_rows_and_metrics_are_exact(worlds: Worlds, steps_per_execution: int) -> None:
    told = worlds.with_servers.run(CASES, "trained", str(steps_per_execution)).same
    assert told["iterations"] == 3 * 14
    assert told["history"]["rows"] == [210.0] * 3
    assert told["history"]["val_rows"] == [50.0] * 3
    assert told["history"]["largest"] == [1.0] * 3
    assert told["history"]["loss"][-1] < told["history"]["loss"][0]
    assert told["evaluated"].keys() == told["expected"].keys()
    for name, expected in told["expected"].items():
        assert told["evaluated"][name] == pytest.approx(expected, abs=1e-6), name
    assert told["difference"] < 1e-6


@pytest.mark.processes
@pytest.mark.parametrize(
    "kind", ["arrays", "split", "dataset", "repeated", "pydataset", "generator", "weights", "classes"]
)
def test_each_row_of_an_epoch_is_trained_on_once(worlds: Worlds, kind: str) -> None:
    counts = worlds.with_servers.run(CASES, "each_row_once", kind).same
    assert counts == [1.0] * (32 if kind == "split" else 64) + [0.0] * (32 if kind == "split" else 0)


@pytest.mark.processes
@pytest.mark.parametrize("takes_context", ["yes", "no"])
def test_workers_read_by_themselves(worlds: Worlds, takes_context: str) -> None:
    case = worlds.with_servers.run(CASES, "dataset_functions", takes_context)
    history, iterations = case.same
    assert "`shuffle=True` was passed" not in case.output, "nobody has"
    assert iterations == 20
    assert (history["rows"], history["val_rows"]) == ([80.0] * 2, [24.0] * 2)
    assert history["val_loss"][1] < history["val_loss"][0]


@pytest.mark.processes
def test_a_workers_data_that_end_are_told(worlds: Worlds) -> None:
    told = worlds.with_servers.run(CASES, "ended_dataset_function").same
    assert "has ended before the epochs have" in told
    assert told.endswith("[dataset-function]")


@pytest.mark.processes
def test_the_first_step_of_an_epoch_does_not_run_alone(worlds: Worlds) -> None:
    """The chief waited for it, so that the logs had numbers, also where nobody looked at them."""
    assert worlds.with_servers.run(CASES, "together").same["met"] == [1.0] * 3


@pytest.mark.processes
def test_what_no_worker_can_do_is_refused(worlds: Worlds) -> None:
    """Besides what `tests/refusals/` has."""
    told = worlds.with_servers.run(CASES, "refused").same
    for name, (words, code) in {
        "endless validation": ("set validation_steps", "endless-data"),
        "endless evaluation": ("set steps=", "endless-data"),
        "function": ("set steps_per_epoch", "endless-data"),
        "parts outside": ("kernel' were made outside", "outside-scope"),
        "python in data": ("the function in place of data calls Python", "python-in-step"),
    }.items():
        assert told[name].startswith("ValueError: "), name
        assert words in told[name]
        assert told[name].endswith(f"[{code}]")


@pytest.mark.processes
def test_a_loss_that_is_no_number_ends_fit_in_its_epoch(worlds: Worlds) -> None:
    """At the end of a batch the chief has the loss of the steps that have ended, in a short epoch of none."""
    assert worlds.with_servers.run(CASES, "not_a_number").same == [[0, True]] * 3


@pytest.mark.processes
def test_weights_say_on_which_server_they_lie(worlds: Worlds) -> None:
    of_table, of_bias = worlds.with_servers.run(CASES, "devices").same
    assert of_table == [f"/job:ps/replica:0/task:{server}/device:CPU:0" for server in (0, 1)]
    assert of_bias.startswith("/job:ps/")


@pytest.mark.processes
def test_callbacks_run_once_for_an_execution_with_numbers_of_ended_steps(worlds: Worlds, tmp_path: Path) -> None:
    seen, history, saved = worlds.with_servers.run(CASES, "callbacks", str(tmp_path)).same
    assert [batch for batch, _, _ in seen] == [1, 3, 5, 7, 9, 11] * 2
    names = ["accuracy", "loss", "max_staleness", "staleness"]
    assert all(of_batch == names and 0.0 < loss < 2.0 for _, of_batch, loss in seen)
    columns = (tmp_path / "log.csv").read_text().splitlines()[0].split(",")
    assert {"max_staleness", "staleness"} <= {*columns}
    assert len(history["loss"]) == 2, "EarlyStopping ends the third of three epochs, of which the first is left out"
    assert history["learning_rate"] == pytest.approx([0.01, 0.0005])
    best = history["val_loss"].index(min(history["val_loss"]))
    assert saved["loss"] == pytest.approx(history["val_loss"][best], abs=1e-6)
    assert list((tmp_path / "board").rglob("events.*"))


@pytest.mark.processes
def test_a_stopped_fit_leaves_nothing_running(worlds: Worlds) -> None:
    rows, are_raised, iterations, again = worlds.with_servers.run(CASES, "stopped").same
    assert rows == [48.0], "six batches of eight"
    assert are_raised == [True, True]
    assert all(before == after for before, after in iterations)
    assert again == [160.0]


@pytest.mark.processes
def test_a_failing_step_tells_the_users_line_once(worlds: Worlds) -> None:
    told, rows = worlds.with_servers.run(CASES, "failing_step").same
    assert "a step failed on worker" in told
    assert told.count("too large") == 2, "in the message, and in the user's line"
    assert told.count("dispatched_cases.py") == told.count("# the line") == 1
    assert "site-packages" not in told
    assert rows == [64.0], "the model trains again"


@pytest.mark.processes
def test_an_error_after_the_loss_of_a_server_is_no_cause(worlds: Worlds) -> None:
    """A step that waited for another's message is told only that it is cancelled; that was taken for the script's."""
    assert worlds.with_servers.run(CASES, "errors_after_a_loss").same == [[False] * 3, [True, True, False]]


@pytest.mark.processes
def test_an_evaluator_has_nothing_to_do_in_a_loop_of_ones_own(worlds: Worlds) -> None:
    told = worlds.with_servers.run(CASES, "coordinator_in_an_evaluator").same
    assert told.startswith("ConfigurationError: an evaluator (--evaluator) follows the snapshots that `fit` takes")
    assert told.endswith("[evaluator]")


@pytest.mark.proof
@pytest.mark.processes
def test_losses_are_scaled_in_mixed_precision(worlds: Worlds) -> None:
    optimizer, iterations, rows, losses = worlds.with_servers.run(CASES, "mixed_precision").same
    assert (optimizer, iterations, rows) == ("LossScaleOptimizer", 60, [160.0] * 3)
    assert losses[2] < losses[0]


@pytest.mark.processes
def test_single_batches(worlds: Worlds) -> None:
    trained, tested, expected, difference, iterations = worlds.with_servers.run(CASES, "single_batches").same
    assert trained["rows"] == 40.0
    assert tested == pytest.approx(expected, abs=1e-6)
    assert (difference < 1e-6, iterations) == (True, 1)


@pytest.mark.proof
@pytest.mark.processes
def test_an_optimizer_may_update_within_a_condition(worlds: Worlds) -> None:
    told = worlds.with_servers.run(CASES, "conditional_updates").same
    assert told.pop("accumulated") == [6, True], "Keras counts the updates: of two steps each"
    assert told == {name: [12, True] for name in ("averaged", "scaled", "function")}


@pytest.mark.processes
def test_steps_draw_what_they_would_in_one_process(worlds: Worlds) -> None:
    dealt, expected, (state, expected_state) = worlds.with_servers.run(CASES, "draws").same
    assert dealt == expected
    assert len(set(dealt)) == 6
    assert state == expected_state


@pytest.mark.processes
def test_predictions_of_any_structure_are_in_order(worlds: Worlds) -> None:
    twice, lengths = worlds.with_servers.run(CASES, "several_outputs").same
    assert twice == [2.0 * row for row in range(50)]
    assert lengths == [row % 3 for row in range(50)]


@pytest.mark.processes
def test_without_staleness_steps_are_those_of_one_process(worlds: Worlds) -> None:
    case = worlds.with_servers.run(CASES, "in_order")
    of_weights, of_history, iterations = case.same
    assert of_weights < 1e-9
    assert of_history < 1e-9
    assert iterations == 20
    assert "XLA cannot compile a step whose variables lie on parameter servers" in case.output


@pytest.mark.processes
@pytest.mark.parametrize(
    ("max_staleness", "steps_per_execution", "num_others"),
    [
        ("0", "1", 0),
        pytest.param("1", "1", 1, marks=pytest.mark.proof),
        ("3", "1", 3),
        pytest.param("3", "2", 2, marks=pytest.mark.proof),
        pytest.param("None", "1", 6, marks=pytest.mark.proof),
    ],
)
def test_staleness_is_counted_and_bounded(
    worlds: Worlds, max_staleness: str, steps_per_execution: str, num_others: int
) -> None:
    """A step is held until as many others have ended as may at most."""
    told = worlds.with_servers.run(CASES, "stale", max_staleness, steps_per_execution, str(num_others)).same
    assert told["max_staleness"] == num_others or (max_staleness == "None" and told["max_staleness"] > num_others)
    # A step has read so many updates of 12 + i; those that it has not seen were by others, before its own.
    unseen = 12 + 11 / 2 - told["read"]
    # Counted are also those that had updated when it read, but had not yet raised the version.
    assert unseen - 1e-5 <= told["staleness"] <= unseen + 1


@pytest.mark.processes
def test_an_evaluation_in_the_middle_of_an_epoch_begins_when_all_steps_have_ended(worlds: Worlds) -> None:
    evaluated, rows = worlds.with_servers.run(CASES, "evaluated_within").same
    assert evaluated == [24.0]
    assert rows == [24.0 + 5 * 8], "Keras's metrics are one for both: evaluate has begun them anew"


@pytest.mark.processes
def test_no_function_is_taken_for_one_that_is_traced_again_and_again(worlds: Worlds) -> None:
    """TensorFlow takes the functions of all objects of a class for one, and warned of six traced once each."""
    assert worlds.with_servers.run(CASES, "many_kinds_of_steps").same == [[], 12.0]


@pytest.mark.proof
@pytest.mark.processes
def test_a_worker_that_hangs_is_named_and_does_not_keep_the_chief(worlds: Worlds, tmp_path: Path) -> None:
    """A step that could not be broken off was waited for without end."""
    told, rows = worlds.with_servers.run(CASES, "stuck", str(tmp_path)).same
    hung, first, not_broken_off, second = told
    assert re.match(r"worker \d has made no step for 4 s \(PACELINE_HANG_TIMEOUT\), and the others go on\. ", hung)
    assert re.match(r"worker \d has not broken off its step within 5 s", not_broken_off)
    assert hung.endswith("[hang]")
    assert (first, second) == ("broken off", "given up")
    assert rows == [[160.0], [160.0]]


def test_a_generator_moves_on_as_in_keras() -> None:
    assert moved_on(np.array([7, 0]), [True, True]).tolist() == [7, 2]
    assert moved_on(np.array([7, 0]), [False]).tolist() == [8 * 5387 % 933199, 5387]
