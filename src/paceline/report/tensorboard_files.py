"""Curves for TensorBoard: of each rank how long a step takes, its input and its waiting, as a run of its own.

    DIR/tensorboard/rank 3/events.out.tfevents.…        beside it, what the user's own callback writes there

A point stands for some steps, at the last one of them; there are as many points as TensorBoard shows.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from paceline.observe.step_files import StepFile
from paceline.report.kept_job import KeptJob
from paceline.report.step_spans import began_of, steps_of, until
from paceline.report.summary import waiting_of

_MAX_POINTS = 1000
_VERSION = "brain.Event:2"

Row = TypeVar("Row")


@dataclass(frozen=True)
class _Point:
    step: int
    at: int
    """Nanoseconds of the launcher's clock."""
    values: dict[str, float]


def write_curves(job: KeptJob, folder: Path) -> None:
    """Writes the runs anew. Raises: OSError: it cannot."""
    points: dict[int, list[_Point]] = {}
    for file in job.of("steps"):
        points.setdefault(file.header.rank, []).extend(_step_points(job, file))
    for file in job.of("waiting"):
        for row in waiting_of(file, job.clock_of(file)):
            for rank, waited in enumerate(row.waited):
                if rank in points:
                    value = waited / row.num_steps / 1e6
                    points[rank].append(_Point(row.last_step, row.ended, {"step/waiting ms": value}))
    for rank, told in points.items():
        run = folder / f"rank {rank}"
        shutil.rmtree(run, ignore_errors=True)
        if told:
            run.mkdir(parents=True)
            _write(job, told, run)


def _write(job: KeptJob, points: Sequence[_Point], run: Path) -> None:
    wall = job.about.wall_ns - job.about.monotonic_ns
    with (run / f"events.out.tfevents.{job.about.wall_ns // 10**9}.{job.about.job_id}").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=job.about.wall_ns / 1e9, file_version=_VERSION).SerializeToString())
        for point in points:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
            event = Event(wall_time=(point.at + wall) / 1e9, step=point.step, summary=Summary(value=values))
            writer.write(event.SerializeToString())
        writer.flush()


def _step_points(job: KeptJob, file: StepFile) -> Iterator[_Point]:
    clock = job.clock_of(file)
    blocks = until(job.blocks_beside(file), began_of(file))
    steps = [step for step in steps_of(file) if step.number is not None]
    for some in _in_groups(blocks):
        lasted, num_steps = some[-1].ended - some[0].began, max(some[-1].last_step - some[0].first_step + 1, 1)
        apart = sum(block.by_phase["start"] + block.by_phase["validation"] for block in some)
        waited = sum(block.by_phase["input"] for block in some)
        yield _point(some[-1].last_step, clock.here(some[-1].ended), (lasted - apart) / num_steps, waited / num_steps)
    numbers = [step.number for step in steps if step.number is not None]
    before = 2 * numbers[0] - numbers[1] if len(numbers) > 1 else 0
    for group in _in_groups(steps):
        last = group[-1]
        assert last.number is not None
        num_steps = max(last.number - before, 1)  # an execution may have several
        before = last.number
        took, waited = (
            sum(each) for each in zip(*((one.ended - one.began, one.lasted("input")) for one in group), strict=True)
        )
        yield _point(last.number, clock.here(last.ended), took / num_steps, waited / num_steps)


def _point(step: int, at: int, took: float, waited: float) -> _Point:
    return _Point(step, at, {"step/step ms": took / 1e6, "step/input ms": waited / 1e6})


def _in_groups(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    size = -(-len(rows) // _MAX_POINTS) or 1
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
