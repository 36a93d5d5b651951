"""A run that dies and goes on ends with the weights, bit by bit, and the history of one that never died.

Each job of `jobs.py` lives once without snapshots, and once with one death or two, all in one process (`lives.py`).
"""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from worlds import Case, Worlds

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("resume")]

SCRIPT = Path(__file__).parent / "resume_jobs.py"

JOBS = (
    "momentum",
    "adam_schedule_clipnorm",
    "dropout_and_batch_normalization",
    "accumulation",
    "layers_and_an_optimizer_with_state",
    "moving_average_swapped_in",
    "loss_scale",
    "several_steps_per_execution",
    "eagerly",
    "arrays_shuffled",
    "arrays_with_weights_and_split",
    "repeated_and_interleaved",
    "repeated_with_small_state",
    "large_shuffle_buffers",
    "finite_data_over_several_epochs",
    "length_unknown",
    "cached",
    "prefetched_to_the_end",
    "random_numbers_in_a_sequential_map",
    "py_dataset",
    "py_dataset_of_many_rows",
    "py_dataset_with_threads",
    "py_dataset_shuffled_at_both_ends",
    "py_dataset_one_iterator_ahead",
    "py_dataset_for_validation",
    "generator",
    "generators_that_draw_from_shared_numbers",
    "optimizers_of_its_own",
    "variables_that_keras_does_not_list",
    "early_stopping_and_plateau",
    "schedules_and_own_callbacks",
    "loggers_and_backup",
    "nothing_to_go_on_from",
    "validation_data",
    "model_changed_by_validation",
    "several_fits",
    "repeats_in_two_fits",
    "repeats_of_unknown_length_in_two_fits",
    "joined_in_two_fits",
    "orders_cached_in_two_fits",
    "captured_in_two_fits",
    "rows_by_index_in_two_fits",
    "files_and_rows_shuffled",
    "py_dataset_in_two_fits",
    "generator_in_two_fits",
    "more_fits_than_ends_are_kept",
    "caught_exception",
    "stopped_in_mid_epoch",
    "fewer_epochs_and_then_all",
    "epochs_one_by_one",
    "phase_before_the_first_step",
    "phase_validation",
    "phase_told_to_stop",
    "phase_told_to_stop_in_validation",
    "phase_last_step",
    "phase_end_of_an_epoch",
    "phase_end_of_training",
    "phase_last_step_of_all",
)
IN_EVERY_CHECK = (
    "layers_and_an_optimizer_with_state",
    "several_steps_per_execution",
    "generators_that_draw_from_shared_numbers",
    "optimizers_of_its_own",
    "variables_that_keras_does_not_list",
    "early_stopping_and_plateau",
    "py_dataset_in_two_fits",
    "stopped_in_mid_epoch",
    "phase_last_step_of_all",
)
"""Each kind of thing once, and as few deaths as it takes; the others, and a second death of each, in `make proof`."""

NOT_EXACT = "loads_back"
"""What no snapshot can hold, and a warning names."""

Live = Callable[..., Case]


@pytest.fixture
def live(worlds: Worlds, tmp_path: Path) -> Live:
    """Lives a job through."""
    return lambda job, *options: worlds.not_launched.run(SCRIPT, job, tmp_path, *options, folder=tmp_path)


def _cases() -> list[Any]:
    proof = pytest.mark.proof
    return [
        *(pytest.param(job, "as few", marks=() if job in IN_EVERY_CHECK else proof) for job in JOBS),
        *(pytest.param(job, "two", marks=proof) for job in JOBS),
    ]


@pytest.mark.parametrize(("job", "deaths"), _cases())
def test_ends_as_if_nothing_had_happened(live: Live, job: str, deaths: str) -> None:
    if job == "several_steps_per_execution" and version("keras").startswith("3.10."):
        with pytest.raises(AssertionError, match=r"need a newer Keras: Keras 3\.10"):  # as the manual says
            live(job, deaths)
        return
    [told] = live(job, deaths).told
    assert told["resumed"] == told["plain"], f"after the deaths {told['deaths']}"


def test_a_pipeline_that_is_not_repeatable_goes_on_and_is_announced(live: Live) -> None:
    ended = live("random_numbers_in_a_sequential_map", "as few")
    [told] = ended.told
    assert told["resumed"] == told["plain"], f"after the deaths {told['deaths']}"
    assert (
        "random augmentation in a parallel map, or by Keras layers in any map, gets other random numbers"
        in ended.output
    )


def test_a_file_that_is_newer_than_the_snapshot_is_announced_where_a_callback_loads_it(live: Live) -> None:
    """What `ModelCheckpoint` had written between the snapshot and the death was loaded back without a word."""
    ended = live(NOT_EXACT, "as few")
    assert "last.weights.h5 was written after the snapshot of step 3, from which this run resumed" in ended.output


@pytest.mark.proof
def test_fits_whose_ends_are_damaged_are_trained_again(live: Live) -> None:
    """Such a `fit` left an untrained model and an empty history, and the script saved that over its file of before."""
    ended = live("ends_of_fits_are_lost", "as few")
    [told] = ended.told
    assert told["resumed"] == told["plain"], f"after the deaths {told['deaths']}"
    assert "This call is trained again from its beginning" in ended.output
    assert "This call is trained again from step-0" in ended.output
