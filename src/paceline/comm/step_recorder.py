"""``--observe DIR`` in a rank: keeps its steps in files that stay small, whatever the number of steps.

    `StepClock.note` ─┐
    `StepDone` ───────┴─► a list ── once a second, a thread ──► single phases of the last steps; sums of all, in blocks
    the chief's account of waiting ─► sums ── with a block ───► who has waited, and for whom

A step appends to a list, and waits for nothing. A block is a second of steps; where there are too many, two become one,
and the next ones last twice as long. What cannot be written ends the records, and not the training.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paceline.cluster.launched import WorkerIdentity
from paceline.comm.step_account import Totals
from paceline.comm.step_clock import Phase
from paceline.comm.step_rows import MAX_ENTRIES, Blocks, LastPhases, UnblockedSteps, Written
from paceline.events.worker_events import Event, StepDone
from paceline.observe.step_files import ENTRY_BITS, KINDS, RANKS, Entry, Header, head_of, name_of

FLUSH_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_ENTRIES_OF_ALL = 8 * MAX_ENTRIES
"""Of more than eight ranks each keeps fewer single phases."""
_MIN_ENTRIES = 16_000
_MAX_UNWRITTEN = 1 << 20
"""So many entries are not written: the disk hangs."""
_KEPT_GENERATIONS = 8


class StepRecorder:
    """Keeps the steps of this rank until `close`.

    Args:
        directory: That of the option.
        identity: Who this rank is.
        host: Where it runs.
        failed: Called once, in some thread, with the reason why nothing is recorded any more.
        now: Nanoseconds of the clock of `StepClock`.
    """

    def __init__(
        self,
        directory: Path,
        identity: WorkerIdentity,
        host: str,
        failed: Callable[[str], None],
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._folder = directory / RANKS
        self._identity = identity
        self._host = host
        self._failed = failed
        self._now = now
        self._began = now(), time.time_ns()
        began_at = self._began[0]
        self._entries: list[int] = []
        self.note: Callable[[int], object] = self._entries.append
        """For `StepClock.note`."""
        self._single = LastPhases(began_at, max(_MIN_ENTRIES, min(MAX_ENTRIES, _ENTRIES_OF_ALL // identity.world_size)))
        self._unblocked = UnblockedSteps(began_at)
        self._blocks, self._waiting = Blocks(), Blocks()
        self._blocked_at = began_at
        self._account = np.zeros(0, np.int64)
        """How long each rank has waited, and was waited for, since the last block."""
        self._account_lock = threading.Lock()
        self._told_until = began_at
        """When the next row of it begins."""
        self._is_over = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write_until_end, name="paceline records steps", daemon=True)

    def start(self) -> None:
        """Begins to write."""
        self._thread.start()

    def hear(self, event: Event) -> None:
        """A sink: steps that are done."""
        if isinstance(event, StepDone) and not self._is_over:
            self.note(event.step << ENTRY_BITS | Entry.STEP)
            if len(self._entries) > _MAX_UNWRITTEN:
                self._give_up("nothing was written for long")

    def waited(self, totals: Totals) -> None:
        """The chief's account of some more steps of the replicas of its model."""
        told = (np.concatenate([totals.waited, totals.blamed.sum(1)]) * 1e9).astype(np.int64)
        with self._account_lock:
            self._account = self._account + told if len(self._account) == len(told) else told

    def close(self) -> None:
        """Writes the rest, if the disk takes it soon."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def _write_until_end(self) -> None:
        try:
            self._make_folder()
            while not self._end.wait(FLUSH_SECONDS) and not self._is_over:
                self.flush()
            if not self._is_over:
                self.flush(is_last=True)
        except Exception as fault:  # whatever it is: the training goes on
            self._give_up(getattr(fault, "strerror", None) or str(fault))

    def _give_up(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._failed(reason)
        self._entries.clear()

    def flush(self, *, is_last: bool = False) -> None:
        """Writes what has come. Raises: OSError: it cannot."""
        entries = np.array(self._entries, np.int64)
        del self._entries[: len(entries)]  # a step may have appended to its end meanwhile
        if len(entries):
            self._write("steps", 1, self._single.add(entries))
            self._unblocked.add(entries)
        now = self._now()
        if is_last or now - self._blocked_at >= self._blocks.scale * FLUSH_SECONDS * 1e9:
            self._blocked_at = now
            if (row := self._unblocked.take()) is not None:
                self._write("blocks", len(row), self._blocks.add(row))
                self._write_waiting(int(row[0]), int(row[1]), now)

    def _write_waiting(self, first_step: int, last_step: int, now: int) -> None:
        """A row of the same steps as a block."""
        with self._account_lock:
            account, self._account = self._account, np.zeros(0, np.int64)
        if len(account):
            began_at, self._told_until = self._told_until, now
            row = np.array([first_step, last_step, began_at, now, *account], np.int64)
            self._write("waiting", len(row), self._waiting.add(row))

    def _make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / self._name(kind, self._identity.generation - _KEPT_GENERATIONS)).unlink()

    def _name(self, kind: str, generation: int) -> str:
        return name_of(self._identity.rank, generation, kind)

    def _write(self, kind: str, width: int, written: Written | None) -> None:
        if written is None:
            return
        path = self._folder / self._name(kind, self._identity.generation)
        data = written.rows.astype("<i8").tobytes()
        if not written.is_whole:
            _write_all(path, "ab", data)
            return
        partial = path.with_name(f"{path.name}.partial")
        _write_all(partial, "wb", head_of(self._header(width)) + data)
        partial.replace(path)

    def _header(self, width: int) -> Header:
        phases = tuple(phase.name.lower() for phase in Phase)
        who = (self._identity.job_id, self._identity.rank, self._identity.generation, self._host)
        return Header(*who, phases, width, *self._began)


def _write_all(path: Path, mode: str, data: bytes) -> None:
    with path.open(mode, buffering=0) as file:
        while data:  # a disk that is nearly full takes a part
            data = data[file.write(data) or 0 :]
