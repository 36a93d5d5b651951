"""What a rank keeps of its steps: bounded, whole in its sums, and no reason for a training to end."""

import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.comm.process_facts import Facts, ProcessFacts
from paceline.comm.step_account import Totals
from paceline.comm.step_clock import Phase, StepClock
from paceline.comm.step_recorder import StepRecorder
from paceline.comm.step_rows import MAX_BLOCKS, MAX_ENTRIES
from paceline.events.worker_events import StepDone
from paceline.observe.step_files import ENTRY_BITS, read_step_files
from paceline.report.step_spans import Span, blocks_of, steps_of
from small_disks import largest_file

MILLISECOND = 1_000_000


def identity(rank: int = 0, generation: int = 1) -> WorkerIdentity:
    return WorkerIdentity(Task(WORKER, rank), rank, 2, rank, 2, generation, "ab12", 0)


def refuse(reason: str) -> None:
    raise AssertionError(reason)


@pytest.mark.parametrize("num_steps", [90_000, pytest.param(1_000_000, marks=pytest.mark.proof)])
def test_a_million_steps_are_a_few_megabytes_and_none_is_missing_in_the_sums(tmp_path: Path, num_steps: int) -> None:
    now = [0]
    recorder = StepRecorder(tmp_path, identity(), "a", refuse, lambda: now[0])
    (tmp_path / "ranks").mkdir()
    phases = {Phase.INPUT: 1, Phase.COUNT: 2, Phase.COMPUTE: 30, Phase.MESSAGES: 5, Phase.UPDATE: 7, Phase.REST: 1}
    entry = np.cumsum(list(phases.values())) * MILLISECOND << ENTRY_BITS | np.array(list(phases), np.int64)
    took = sum(phases.values()) * MILLISECOND
    waited = Totals(2)
    waited.num_steps, waited.waited, waited.blamed = 30, np.array([0.04, 0.0]), np.ones((2, len(Phase))) * 0.01
    for step in range(1, num_steps + 1):
        for one in (entry + ((step - 1) * took << ENTRY_BITS)).tolist():
            recorder.note(one)
        recorder.hear(StepDone(0, step, 0))
        if step % 30 == 0 or step == num_steps:
            now[0] = step * took
            recorder.waited(waited)
            recorder.flush(is_last=step == num_steps)
    files = {file.kind: file for file in read_step_files(tmp_path / "ranks")}
    assert len(files["steps"].numbers) <= MAX_ENTRIES + 1
    steps = [step for step in steps_of(files["steps"]) if step.is_step and step.number is not None]
    numbers = [step.number for step in steps]
    assert numbers == list(range(num_steps - len(numbers) + 1, num_steps + 1))
    assert len(numbers) >= 10_000
    blocks = list(blocks_of(files["blocks"]))
    assert len(blocks) <= MAX_BLOCKS
    assert (blocks[0].first_step, blocks[-1].last_step) == (1, num_steps)
    assert all(before.last_step + 1 == after.first_step for before, after in pairwise(blocks))
    assert all(before.ended == after.began for before, after in pairwise(blocks))
    sums = {phase.name.lower(): num_steps * milliseconds * MILLISECOND for phase, milliseconds in phases.items()}
    assert {phase: sum(block.by_phase[phase] for block in blocks) for phase in sums} == sums
    rows = list(files["waiting"].rows())
    assert len(rows) <= MAX_BLOCKS
    assert sum(row[4] for row in rows) == -(-num_steps // 30) * 40 * MILLISECOND
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 5_000_000, "of two ranks 10 MB, of all 50 MB"


def test_a_step_without_a_first_message_is_divided_by_when_its_batch_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # when each step begins
    now = [0]
    recorder = StepRecorder(tmp_path, identity(), "a", refuse, lambda: now[0])
    (tmp_path / "ranks").mkdir()
    clock = StepClock(lambda: now[0], ProcessFacts(Facts, lambda: 0))
    clock.note = recorder.note
    clock.begin()
    for step, came in ((1, 0.0), (2, 1e10), (3, None)):
        clock.step_begins()
        clock.input_came_at = None if came is None else lambda came=came: came
        now[0] += 10 * MILLISECOND
        clock.step_ended()
        recorder.hear(StepDone(0, step, 0))
        recorder.flush()
    recorder.flush(is_last=True)
    files = {file.kind: file for file in read_step_files(tmp_path / "ranks")}
    steps = [step for step in steps_of(files["steps"]) if step.is_step]
    assert [
        [(span.phase, span.ended - span.began) for span in step.spans if span.ended > span.began] for step in steps
    ] == [
        [("compute", 10 * MILLISECOND)],
        [("input", 10 * MILLISECOND)],
        [("whole", 10 * MILLISECOND)],
    ]
    [block] = blocks_of(files["blocks"])
    assert {phase: time for phase, time in block.by_phase.items() if time} == {
        "input": 10 * MILLISECOND,
        "compute": 10 * MILLISECOND,
        "whole": 10 * MILLISECOND,
    }
    assert isinstance(steps[0].spans[0], Span)


def test_a_full_disk_ends_the_records_and_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    recorder = StepRecorder(tmp_path, identity(), "a", told.append)
    recorder.note(1)
    with largest_file(10):
        recorder.start()
        recorder.close()
    assert len(told) == 1
    assert "File too large" in told[0]
    for step in range(10):
        recorder.hear(StepDone(0, step, 0))
    recorder.close()
    assert len(told) == 1


def test_a_disk_that_hangs_costs_no_memory_and_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    recorder = StepRecorder(tmp_path, identity(), "a", told.append)
    for step in range((1 << 20) + 10):  # nobody takes them
        recorder.hear(StepDone(0, step, 0))
    assert len(told) == 1


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[str] = []
    recorder = StepRecorder(tmp_path / "file", identity(), "a", told.append)
    recorder.start()
    recorder.close()
    assert told == [os.strerror(20)]


@pytest.mark.parametrize("generation", [8, 9, 12])
def test_of_generations_the_last_eight_are_kept(tmp_path: Path, generation: int) -> None:
    for number in range(1, generation + 1):
        recorder = StepRecorder(tmp_path, identity(generation=number), "a", refuse)
        recorder.note(1)
        recorder.start()
        recorder.close()
    kept = {file.header.generation for file in read_step_files(tmp_path / "ranks")}
    assert kept == set(range(max(1, generation - 7), generation + 1))
