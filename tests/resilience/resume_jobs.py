"""The lives of each job, in one process that nobody launched: a warm world of `test_resume.py`."""

import random
from pathlib import Path

from jobs import JOBS, MANY_FITS, STEPS, STEPS_OF_MANY, STEPS_UNTIL_PRUNED
from lives import SEED, live, lives, num_steps

import paceline.callbacks
from paceline.data.order.seeds import agree_seeds
from paceline.resilience.usable_snapshots import ENDS_FIT
from paceline.store.manifest import SnapshotInfo
from paceline.store.shards import TENSORS_FILE, rank_folder
from paceline.store.snapshots import SnapshotStore

paceline.callbacks.Snapshot  # noqa: B018  # puts the seam with Keras in place
agree_seeds(SEED)


PHASES = {
    "phase_before_the_first_step": [("begin", 1)],
    "phase_validation": [("test", 1), ("test", 2 * 5 + 2)],
    "phase_told_to_stop": [("told", 5), ("told", 9)],
    "phase_told_to_stop_in_validation": [("told in test", 2), ("told in test", 6)],
    "phase_last_step": [("step", STEPS)],
    "phase_end_of_an_epoch": [("epoch", 1)],
    "phase_end_of_training": [("end", 1)],
    "phase_last_step_of_all": [("step", 3 * STEPS)],
}

DEATHS = {
    **PHASES,
    "py_dataset_in_two_fits": [("step", 2 * STEPS + 1), ("step", 2)],  # before the second one's first snapshot, and on
    "files_and_rows_shuffled": [("step", STEPS + 2), ("step", 2 * STEPS + 1)],
    # In the second epoch of each fit.
    "repeats_in_two_fits": [("step", 25 + 5), ("step", 2 * 25 - 5 + 25 + 5)],
    "repeats_of_unknown_length_in_two_fits": [("step", STEPS + 15), ("step", 4 * STEPS + 2)],
    "joined_in_two_fits": [("step", 25 + 5), ("step", 2 * 25 - 5 + 25 + 5)],
    "orders_cached_in_two_fits": [("step", STEPS + 5), ("step", 2 * STEPS - 5 + STEPS + 5)],
    "captured_in_two_fits": [("step", 15 + 5), ("step", 2 * 15 - 5 + 15 + 5)],
    # In the first fit's second epoch, in its validation, and in the second fit, whose data repeat in mid epoch.
    "rows_by_index_in_two_fits": [("step", STEPS + 5), ("told in test", 1), ("step", STEPS + 4), ("told", 4)],
    "py_dataset_shuffled_at_both_ends": [("told", STEPS), ("told in test", 1), ("step", 5)],
    "py_dataset_one_iterator_ahead": [("told in test", 1), ("step", 5)],
    # Before the first validation, before the third, before the second of the next fit, and in that.
    "py_dataset_for_validation": [("test", 1), ("step", STEPS + 4), ("step", 2 * STEPS + 4), ("told in test", 1)],
    "model_changed_by_validation": [("told in test", 2)],
    "generators_that_draw_from_shared_numbers": [("step", 4), ("step", 2 * 6 - 3 + 4)],  # each fit's 4th step
    # In the first fit's second epoch, before the second fit's first snapshot, and in its second epoch.
    "generator_in_two_fits": [("step", 7 + 4), ("step", 2 * 7 - 9 + 1), ("step", 7 + 5)],
    "more_fits_than_ends_are_kept": [("step", (MANY_FITS - 2) * STEPS_OF_MANY + 3), ("step", 3 + 4)],
    "nothing_to_go_on_from": [("epoch", 2), ("step", 3 * STEPS + STEPS + 2)],  # in the first fit, and in the second
    "loads_back": [("step", 6)],
    "caught_exception": [("step", STEPS_UNTIL_PRUNED + 5), ("step", STEPS_UNTIL_PRUNED + 4)],
    "stopped_in_mid_epoch": [("test", 2 + 2), ("told in test", 1)],
    "fewer_epochs_and_then_all": [("step", 2 * STEPS + 3), ("step", 1)],
    # In the third fit; while the first one is trained again; while the second one is, behind a snapshot.
    "ends_of_fits_are_lost": [("step", 3 * STEPS + 4), ("step", STEPS + 2), ("step", STEPS)],
}
"""Where it matters."""


def lose_ends(directory: Path) -> None:
    """Of the first two fits; of the second one an earlier snapshot stays. One bit is enough, and no size tells."""
    store = SnapshotStore(directory)
    before_end = 0
    for entry in store.entries():
        assert isinstance(entry, SnapshotInfo)
        if entry.fit_call == 0 or (entry.fit_call == 1 and entry.notes[ENDS_FIT]):
            path = directory / entry.name / rank_folder(0) / TENSORS_FILE
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
        before_end += entry.fit_call == 1 and not entry.notes[ENDS_FIT]
    assert before_end, "no snapshot of the second fit is left to go on from"


DAMAGES = {"ends_of_fits_are_lost": lose_ends}
"""What happens at the first death."""


DIE_TWICE = {"layers_and_an_optimizer_with_state", "large_shuffle_buffers", "several_fits"}
"""In every check; in `make proof` all do. A life is most of what a job costs."""


def run_case(name: str, directory: str, num_deaths: str) -> dict[str, object]:
    """What the job comes to undisturbed, and after its deaths (``as few`` as it takes, or ``two``)."""
    plain = live(JOBS[name], None)
    deaths = DEATHS.get(name) or deaths_of(name, num_steps(), num_deaths == "two" or name in DIE_TWICE)
    again = lives(JOBS[name], Path(directory) / name, *deaths, damage=DAMAGES.get(name))
    return {"plain": plain, "resumed": again, "deaths": deaths}


def deaths_of(job_name: str, num_steps: int, is_twice: bool) -> list[tuple[str, int]]:
    """One death anywhere, and one at most as far from where the life that follows begins."""
    drawn = random.Random(job_name)
    first = drawn.randint(1, num_steps)
    left = num_steps - 3 * ((first - 1) // 3)
    deaths = [("step", first), ("step", drawn.randint(1, max(1, left - 3)))]
    return deaths if is_twice else deaths[:1]


for _name in PHASES:
    JOBS[_name] = JOBS["validation_data"]
