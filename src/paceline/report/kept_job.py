"""The folder of ``--observe``: what the launcher and the ranks have kept of a job, read again.

DIR/job.json        which job it is, and the launcher's clocks; its first file
DIR/events.jsonl    what has happened, on the launcher's clock
DIR/ranks/          the steps of each rank (`observe/step_files.py`)

DIR/trace.json.gz, DIR/tensorboard/, DIR/report.html      made of these, again whenever somebody asks
"""

import functools
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ConfigurationError
from paceline.observe.step_files import RANKS, StepFile, is_step_file, read_step_files
from paceline.report.host_clocks import HostClock, Sample
from paceline.report.step_spans import Block, blocks_of, ended_of
from paceline.wire.codec import Decoder, GarbledError, Record, encode

JOB, EVENTS, TRACE, TENSORBOARD, PAGE = "job.json", "events.jsonl", "trace.json.gz", "tensorboard", "report.html"

Event = dict[str, Any]
"""As `JsonLines` writes it, with the time in seconds of the launcher's monotonic clock."""


class JobFile(Record, frozen=True):
    """What ``job.json`` says."""

    job_id: str
    program: str
    host: str
    """The launcher's."""
    monotonic_ns: int
    wall_ns: int
    """Since 1970, at that time."""


@dataclass(frozen=True)
class KeptJob:
    """A job of which there are records."""

    about: JobFile
    events: list[Event]
    files: list[StepFile]

    def of(self, kind: str) -> list[StepFile]:
        """The files of a kind, by generation and rank."""
        return [file for file in self.files if file.kind == kind]

    def clock_of(self, file: StepFile) -> HostClock:
        """From the clock of the rank that has written `file` to the launcher's."""
        host = file.header.host
        if host == self.about.host:
            return HostClock([Sample(0, 0, 0)])
        if samples := self._samples.get(host):
            return HostClock(samples)
        about = self.about
        apart = (file.header.monotonic_ns - file.header.wall_ns) - (about.monotonic_ns - about.wall_ns)
        return HostClock([Sample(0, apart, None)])

    @functools.cached_property
    def _samples(self) -> dict[str, list[Sample]]:
        """By host, what was measured of its clock."""
        found: dict[str, list[Sample]] = {}
        for event in self.events:
            if event["event"] == "ClockMeasured":
                told = (round(event[name] * 1e9) for name in ("clock_seconds", "offset_seconds", "error_seconds"))
                found.setdefault(event["host"], []).append(Sample(*told))
        return found

    def hosts(self) -> list[str]:
        """Those of which there are steps, that of the first rank first."""
        return list(dict.fromkeys(file.header.host for file in self.of("steps")))

    def error_of(self, host: str) -> int | None:
        """By how many nanoseconds times of that host may be wrong here; None: nobody knows."""
        errors = [
            self.clock_of(file).error_ns(file.header.monotonic_ns, ended_of(file))
            for file in self.of("steps")
            if file.header.host == host
        ]
        return None if None in errors else max((error for error in errors if error is not None), default=0)

    def blocks_beside(self, file: StepFile) -> list[Block]:
        """The sums of the process whose single phases `file` has."""
        who = (file.header.rank, file.header.generation)
        beside = [one for one in self.of("blocks") if (one.header.rank, one.header.generation) == who]
        return [block for one in beside for block in blocks_of(one)]

    def num_ranks(self) -> int:
        """How many ranks the job had at last."""
        told = [event["num_workers"] for event in self.events if event["event"] == "GenerationBegan"]
        return told[-1] if told else len({file.header.rank for file in self.files})

    def missing(self) -> dict[str, list[int]]:
        """By host, the ranks that have left nothing here, where others have: that host has another disk."""
        there = {file.header.rank for file in self.files}
        began = [event for event in self.events if event["event"] == "WorkerStarted" and "rank" in event]
        hosts: dict[int, str] = {event["rank"]: event["host"] for event in began}
        gone: dict[str, list[int]] = {}
        for rank, host in sorted(hosts.items()):
            if there and rank < self.num_ranks() and rank not in there and host != self.about.host:
                gone.setdefault(host, []).append(rank)
        return gone


def begin(directory: Path, job_id: str, program: str, host: str) -> None:
    """Removes what an earlier job has kept there, and says which job this is.

    Raises:
        FileExistsError: files with the names of the records are there, and are somebody else's.
        OSError: it cannot.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / JOB).exists():  # else what is there is somebody else's
        _refuse_others(directory)
        for path in (directory / RANKS).glob("*"):
            if is_step_file(path):
                path.unlink(missing_ok=True)
        for path in (directory / TENSORBOARD).glob("rank *"):  # the user's own callback may write beside them
            shutil.rmtree(path, ignore_errors=True)
        for name in (JOB, EVENTS, TRACE, PAGE):
            (directory / name).unlink(missing_ok=True)
    about = JobFile(job_id, program, host, time.monotonic_ns(), time.time_ns())
    (directory / JOB).write_bytes(encode(about))


def read_job(directory: Path) -> KeptJob:
    """The records in `directory`.

    Raises:
        ConfigurationError: there are none.
        OSError: they cannot be read.
    """
    about = _about(directory)
    try:
        lines = (directory / EVENTS).read_bytes().splitlines()
    except FileNotFoundError:
        lines = []
    events = [event for line in lines if (event := _event_of(line)) is not None]
    return KeptJob(about, events, read_step_files(directory / RANKS, about.job_id))


def _refuse_others(directory: Path) -> None:
    try:
        _about(directory)
    except ConfigurationError:
        raise FileExistsError(
            f"{directory / JOB} is another program's file, and the records would replace it. Fix: name another folder"
        ) from None


def _about(directory: Path) -> JobFile:
    try:
        return Decoder[JobFile](JobFile)((directory / JOB).read_bytes())
    except (FileNotFoundError, NotADirectoryError, GarbledError):
        raise ConfigurationError(
            f"{directory} has no records of a job. Fix: name the folder that was given to `paceline run --observe "
            "FOLDER`. [no-records]"
        ) from None


def _event_of(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:  # the last line of a disk that was full
        return None
    return event if isinstance(event, dict) and "event" in event and "time" in event else None
