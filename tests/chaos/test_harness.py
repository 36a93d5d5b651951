"""The judge sees rows that come twice, or never, and counts only what the last life made of a step."""

from typing import Any

from harness import rows_of_steps, unreported, wrong_rows
from schedules import PHASES, STEPS, Cell, lives_of, matrix, random_schedules

from paceline.chaos.fault_text import read_plan

EPOCH = {step: [*range(8 * step, min(60, 8 * step + 8))] for step in range(8)}


def note(life: tuple[str, int], step: int, rows: list[int]) -> dict[str, Any]:
    return {"life": life, "step": step, "rows": rows, "at": 0.0}


def test_a_step_has_the_rows_of_all_ranks_in_its_last_life() -> None:
    notes = [note(("00", 1), 3, [1, 2]), note(("00", 2), 3, [4]), note(("00", 2), 3, [3]), note(("00", 1), 4, [9])]
    assert rows_of_steps(notes) == {3: [3, 4], 4: [9]}
    assert rows_of_steps([*notes, note(("01", 1), 3, [7])])[3] == [7]


def test_an_undisturbed_epoch_is_right() -> None:
    assert wrong_rows(EPOCH, EPOCH) == []


def test_a_row_that_comes_twice_and_one_that_never_comes_are_seen() -> None:
    other = {**EPOCH, 2: [*EPOCH[2][:-1], 0]}
    first, second = wrong_rows(other, EPOCH)
    assert first.startswith("epoch 1 has the rows [0, 0, 1")
    assert second == "step 2 has other rows"
    assert wrong_rows({step: rows for step, rows in EPOCH.items() if step < 7}, EPOCH)


def test_the_matrix_has_every_cell_and_paceline_can_read_all_of_it() -> None:
    cases = [*matrix(["a", "b"]), *random_schedules(["a"], 200)]
    for case in cases:
        for life in filter(None, case.lives):
            assert all((fault.step or 0) < STEPS for fault in read_plan([life]).faults)
    two = [cell for case in cases for cell in case.cells if case.num_workers == 2]
    assert len(two) == len({*two}) == 2 * 4 * len(PHASES)


def test_a_restart_has_a_death_in_front_of_it() -> None:
    assert lives_of([Cell("term", "restart", 1)]) == ("kill:rank=1,phase=start;term:rank=1,phase=restart", "")
    assert lives_of([Cell("kill", "start", 0), Cell("stop", "restart", 0)]) == (
        "kill:rank=0,phase=start;stop:rank=0,phase=restart",
    )


def test_damage_of_which_nobody_tells_is_seen() -> None:
    flipped = "[0] paceline: chaos: one bit of /a/step-05/rank-00000/tensors.safetensors is flipped\n"
    assert unreported(flipped) == ["nobody says that /a/step-05 is not used"]
    assert not unreported(f"{flipped}[0] paceline: snapshot /a/step-05 is not used: a checksum is another one\n")
    full = "[0] paceline: chaos: no room for .tmp-step-000000000010-ab-g1-a2\n"
    assert unreported(full)
    assert not unreported(f"{full}[0] paceline: NO SNAPSHOT of step 5 could be written\n")
