"""Runs a case and judges it: the same bits, the same history, each row once in an epoch, and no process left."""

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from schedules import SNAPSHOT_EVERY, STEPS_PER_EPOCH, Case

from paceline.errors import EXIT_PREEMPTED
from process_table import marked, until_gone
from programs import Ended, Program, start_python

_SCRIPT = Path(__file__).with_name("chaos_jobs.py")
_SEED = 7
_MARK = "CHAOS_CASE"
_ROWS = 60
_MAX_RESTARTS = 20
_GRACE_SECONDS = 20.0
_LINES_SHOWN = 60

Life = tuple[str, int]


@dataclass
class Verdict:
    """What came of a case."""

    case: Case
    faults: list[str] = field(default_factory=list)
    """What is wrong; nothing: it has passed."""
    num_steps_again: int = 0
    seconds_to_next_step: list[float] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""

    @property
    def has_passed(self) -> bool:
        return not self.faults


class Lab:
    """Runs cases in `folder`, in any thread, and keeps one undisturbed run of each job beside them.

    Args:
        folder: Is made; what passes leaves nothing in it.
        deadline_seconds: Of each run of the command.
        hang_timeout_seconds: For the jobs.
    """

    def __init__(self, folder: Path, *, deadline_seconds: float, hang_timeout_seconds: float = 5.0) -> None:
        self._folder = folder
        self._deadline_seconds = deadline_seconds
        self.hang_timeout_seconds = hang_timeout_seconds
        self._references: dict[tuple[str, int], Path] = {}
        self._one_reference_at_a_time = threading.Lock()
        self._running: set[Program] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def reference(self, job: str, num_workers: int) -> Path:
        """The folder of the undisturbed run."""
        with self._one_reference_at_a_time:
            if (job, num_workers) not in self._references:
                folder = self._folder / f"reference-{job}-{num_workers}"
                folder.mkdir()
                ended = self._run(job, num_workers, folder, [], {"CHAOS_LIFE": "0"})
                assert ended.code == 0, ended.output
                self._references[job, num_workers] = folder
            return self._references[job, num_workers]

    def run(self, case: Case) -> Verdict:
        """Runs and judges."""
        reference = self.reference(case.job, case.num_workers)
        verdict = Verdict(case)
        folder = self._folder / f"case-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        began = time.monotonic()
        try:
            self._live(case, folder, verdict)
            if verdict.has_passed:
                _compare(case, folder, reference, verdict)
        except AssertionError as fault:  # the deadline
            verdict.faults.append(str(fault).partition("\n")[0])
            verdict.output += str(fault)
        verdict.seconds = time.monotonic() - began
        if verdict.has_passed:
            shutil.rmtree(folder)
        else:
            (folder / "output.txt").write_text(verdict.output)
            verdict.faults.append(f"all of it is in {folder}")
        return verdict

    def _live(self, case: Case, folder: Path, verdict: Verdict) -> None:
        for number, chaos in enumerate(case.lives):
            is_last = number == len(case.lives) - 1
            options = [
                *("--max-restarts", str(_MAX_RESTARTS)),
                *("--snapshot-dir", str(folder / "snapshots")),
                *("--snapshot-every", str(SNAPSHOT_EVERY)),
                *("--hang-timeout", str(self.hang_timeout_seconds)),
                *(["--chaos", chaos] if chaos else []),
                *(["--standby"] if chaos.count(";") else []),
            ]
            mark = uuid.uuid4().hex
            ended = self._run(case.job, case.num_workers, folder, options, {"CHAOS_LIFE": f"{number:02d}", _MARK: mark})
            verdict.output += f"--- life {number} under {chaos!r} ended with {ended.code}\n{ended.output}"
            expected = 0 if is_last else EXIT_PREEMPTED
            if ended.code != expected:
                verdict.faults.append(f"life {number} under {chaos!r} ended with {ended.code}, expected {expected}")
            num_faults = len(chaos.split(";")) if chaos else 0
            num_strikes = sum(" is injected after step " in line for line in ended.lines("["))
            if num_strikes < num_faults:
                verdict.faults.append(f"life {number}: {num_strikes} of {num_faults} faults struck ({chaos!r})")
            verdict.faults += unreported(ended.output)
            if left := _marked(mark):
                verdict.faults.append(f"life {number} leaves processes: {left}")
            if verdict.faults:
                return

    def _run(self, job: str, num_workers: int, folder: Path, options: list[str], variables: dict[str, str]) -> Ended:
        command = ["run", "--workers", str(num_workers), "--seed", str(_SEED), *options]
        program = start_python("-m", "paceline", *command, _SCRIPT, job, folder, folder=folder, variables=variables)
        self._running.add(program)
        try:
            return program.ended(self._deadline_seconds)
        except BaseException:  # also Ctrl-C
            if program.process.poll() is None:
                program.kill()
            raise
        finally:
            self._running.discard(program)
            program.close()

    def stop(self) -> None:
        """Ends the runs that other threads have begun; those cases fail."""
        for program in (*self._running,):
            program.kill()


def unreported(output: str) -> list[str]:
    """Damage and full disks of which the user was not told."""
    flipped = re.findall(r"one bit of (\S+)/rank-\S+ is flipped", output)
    faults = [
        f"nobody says that {path} is not used" for path in flipped if f"snapshot {path} is not used" not in output
    ]
    # Who is killed before the next snapshot is written has met no full disk.
    if "chaos: no room for " in output and "NO SNAPSHOT of step" not in output:
        faults.append("nobody says that a snapshot could not be written")
    return faults


def _marked(mark: str) -> list[str]:
    """The processes of a run that has ended, after a moment of grace."""
    return [f"{one.pid} {one.name}" for one in until_gone(lambda: marked(_MARK, mark), _GRACE_SECONDS)]


def _compare(case: Case, folder: Path, reference: Path, verdict: Verdict) -> None:
    for rank in range(case.num_workers):  # ranks differ in the gradients that they have accumulated
        expected = json.loads((reference / f"result-{rank}.json").read_text())
        told = json.loads((folder / f"result-{rank}.json").read_text())
        for name, value in expected.items():
            if told[name] != value:
                verdict.faults.append(f"rank {rank} has other {name}")
    notes = _notes(folder, case.num_workers)
    steps, undisturbed = rows_of_steps(notes), rows_of_steps(_notes(reference, case.num_workers))
    verdict.faults += wrong_rows(steps, undisturbed)
    verdict.num_steps_again = len({(note["life"], note["step"]) for note in notes}) - len(steps)
    verdict.seconds_to_next_step = _pauses(notes)


def _notes(folder: Path, num_workers: int) -> list[dict[str, Any]]:
    notes = []
    for rank in range(num_workers):
        for line in (folder / f"rows-{rank}.jsonl").read_text().splitlines():
            note = json.loads(line)
            notes.append({**note, "life": tuple(note["life"])})
    return notes


def rows_of_steps(notes: list[dict[str, Any]]) -> dict[int, list[int]]:
    """The rows of each step that count: those of the last life that made it, of all ranks."""
    last: dict[int, Life] = {}
    for note in notes:
        last[note["step"]] = max(last.get(note["step"], ("", 0)), note["life"])
    steps: dict[int, list[int]] = {step: [] for step in last}
    for note in notes:
        if note["life"] == last[note["step"]]:
            steps[note["step"]] += note["rows"]
    return {step: sorted(rows) for step, rows in sorted(steps.items())}


def wrong_rows(steps: dict[int, list[int]], undisturbed: dict[int, list[int]]) -> list[str]:
    """Where an epoch has a row not once, or a step has other rows than in the undisturbed run."""
    faults = []
    if steps.keys() != undisturbed.keys():
        faults.append(f"steps {[*steps]} were made, undisturbed {[*undisturbed]}")
    for first in range(0, len(steps), STEPS_PER_EPOCH):
        rows = sorted(row for step in range(first, first + STEPS_PER_EPOCH) for row in steps.get(step, []))
        if rows != [*range(_ROWS)]:
            faults.append(f"epoch {first // STEPS_PER_EPOCH + 1} has the rows {rows}")
    faults += [f"step {step} has other rows" for step, rows in undisturbed.items() if steps.get(step, rows) != rows]
    return faults


def _pauses(notes: list[dict[str, Any]]) -> list[float]:
    """Seconds from the last step of a generation to the first of the next one, of the same run of the command."""
    times: dict[Life, list[float]] = {}
    for note in notes:
        times.setdefault(note["life"], []).append(note["at"])
    return [
        min(times[after]) - max(times[before])
        for before, after in pairwise(sorted(times))
        if before[0] == after[0] and before[1] + 1 == after[1]
    ]


def last_lines(verdict: Verdict) -> str:
    """The end of what a case that failed has printed."""
    return "\n".join(verdict.output.splitlines()[-_LINES_SHOWN:])


def environment_text() -> str:
    """Where a score was taken."""
    versions = {name: _version(name) for name in ("tensorflow", "tensorflow-cpu", "keras")}
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return f"{len(os.sched_getaffinity(0))} cores, Python {sys.version.split()[0]}, {installed}"


def _version(name: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return ""
