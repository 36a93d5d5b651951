"""The snapshots of this process: one directory, agreed over ranks, written in the background.

rank 0   copy ─ all idle? ─ step ─ …   thread: lock? room? ─► directory ─► shard ─► the others' shards ─► manifest
rank 1   copy ─ all idle? ─ step ─ …   thread: wait for the directory ─────► shard

A snapshot is begun when no rank writes any more; the ranks agree on that, so all write the same ones. Until then a copy
waits, and a newer one takes its place: a disk that is slower than snapshots come costs snapshots, not steps. There are
at most two copies.

A rank that cannot write its shard takes the directory away: by that all know. The chief alone makes one, so none comes
back, and before it writes anything it looks whether the directory of snapshots is still its own.
"""

import atexit
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paceline.comm.world import World
from paceline.errors import ConfigurationError
from paceline.observe.failure import log_with_rank
from paceline.resilience.copy_buffers import BufferPool, CopyBuffers
from paceline.resilience.fault_injection import FaultyFolder, chaos_of
from paceline.resilience.parts import Captured, Layout
from paceline.resilience.restored_parts import SavedParts
from paceline.resilience.shared_directory import check_that_all_see_it, chiefs_texts
from paceline.resilience.usable_snapshots import ENDS_FIT, is_needed, newest_usable, usable_of_fit
from paceline.resilience.write_failures import ShardMissingError, WriteFailures
from paceline.store.background import BackgroundWriter, Outcome
from paceline.store.folder import Folder
from paceline.store.manifest import SnapshotInfo, SnapshotMeta
from paceline.store.retention import parse_retention
from paceline.store.shards import Shard, ShardRecord
from paceline.store.snapshots import SnapshotStore, Writer

_LOGGER = logging.getLogger("paceline")

_SHARDS_SECONDS = 120.0
_POLL_SECONDS = 0.01
_LONGEST_POLL_SECONDS = 0.25
_SETTLING_SECONDS = 1.0
_HEAD_START_SECONDS = 0.005
_LAST_SECONDS = 20.0
"""For what is being written when the process ends."""


@dataclass(frozen=True, slots=True)
class _Job:
    step: int
    attempt: int
    meta: SnapshotMeta
    shard: Shard
    buffers: CopyBuffers
    """That of `shard`."""


class SnapshotManager:
    """The snapshots of one job, or of one of its models, in one directory.

    Args:
        directory: A path, or a URL that the store knows.
        world: The job.
        layout: The ranks that take snapshots together: all, or this rank's data group.
        keep: Which stay (`parse_retention`), besides the last ones of earlier fits: a rerun passes through them.
        notes: What is said of each of them.
    """

    def __init__(
        self, directory: str, world: World, layout: Layout, keep: int | str, notes: Mapping[str, object] | None = None
    ) -> None:
        self._world = world
        self.layout = layout
        self._size = sum(map(len, layout.groups))
        self.group = world.group if self._size == world.size else world.data
        self.notes = notes or {}
        self.leads = layout.rank == 0
        """Whether this rank decides and commits for those of the layout: their chief."""
        self.metrics = parse_retention(keep).metrics
        """By which the best ones are kept."""
        self.chaos = chaos_of(world, os.environ)
        """The faults that ``--chaos`` injects."""
        self._writer = Writer(world.identity.job_id, world.identity.generation)
        self._store = SnapshotStore(
            directory,
            keep=keep,
            writer=self._writer,
            is_kept=lambda info, newest: is_needed(info, newest, self.found),
            around=self._under_chaos,
        )
        self._held = contextlib.ExitStack()
        self._buffers = BufferPool()
        self._attempt = self._settled_attempt = 0
        """The last one that the chief is known to do nothing more about."""
        self._has_left_out = False
        self._next: _Job | None = None
        """The newest copy, if it has not been begun; the same attempt on all ranks."""
        self._failures = WriteFailures(self._store, world.rank, leads=self.leads)
        self._background: BackgroundWriter[_Job, SnapshotInfo | None] = BackgroundWriter(
            self._write, self._done, patience_seconds=_LAST_SECONDS, head_start_seconds=_HEAD_START_SECONDS
        )
        self.found: SnapshotInfo | None = None
        """The snapshot to go on from, the same on all ranks; None: there is none."""
        self.committed: SnapshotInfo | None = None
        """The newest one that this process has seen become whole; on the chief only."""

    @property
    def has_none(self) -> bool:
        """Whether there is no snapshot to go on from, and none has been taken yet; the same on all ranks."""
        return self.found is None and self._attempt == 0

    def open(self) -> None:
        """Takes the directory for this job and agrees on the snapshot to go on from. Collective.

        Raises:
            ConfigurationError: another job holds it, or some host does not see it; on all ranks.
        """
        log_with_rank(self._world.rank, self._world.size)  # where no launcher has: what goes on must be seen
        fault, name = "", ""
        if self.leads:
            try:
                for line in self._held.enter_context(self._store.hold()):
                    _LOGGER.info("%s", line)
                name = newest_usable(self._store, self._writer.generation)
            except ConfigurationError as error:
                fault = str(error)
            except OSError as error:
                said = str(error) or type(error).__name__
                fault = f"the snapshot directory {self._store.location} cannot be used: {said} [snapshot-directory]"
        fault, name = chiefs_texts(self.group, fault, name)
        if fault:
            raise ConfigurationError(fault)
        check_that_all_see_it(self._store, self.group, name)
        self.found = self._store.find(name) if name else None
        self._background.__enter__()
        atexit.register(self.close)

    def saved(self, info: SnapshotInfo) -> SavedParts:
        """A snapshot as this rank restores it."""
        return SavedParts(self._store.open(info), self.layout)

    def newest_of_fit(self, fit_call: int, *, ends_fit: bool) -> SnapshotInfo | None:
        """See `usable_of_fit`; None: there is none. Collective: as the chief sees it."""
        name = usable_of_fit(self._store, fit_call, self.found, ends_fit=ends_fit) if self.leads else ""
        [name] = chiefs_texts(self.group, name)
        return self._store.find(name) if name else None

    def noted_first(self, name: str, value: Mapping[str, int]) -> Mapping[str, int] | None:
        """What an earlier life of the job has noted under `name`; else None, and `value` is noted. The chief's."""
        return self._store.noted_first(name, value) if self.leads else None

    def take(self, step: int, meta: SnapshotMeta, captured: Captured) -> None:
        """Takes a snapshot, to be written while training goes on. Collective, at the same step.

        Args:
            step: Which.
            meta: What the chief says about it.
            captured: The state, which is copied now.
        """
        self._attempt += 1
        if self._next is not None:
            self._leave_out(self._next)  # first, for its memory: so there are never more than two
        buffers = self._buffers.take()
        buffers.begin()
        shard = captured.copied(buffers)
        buffers.end()
        self._next = _Job(step, self._attempt, meta, shard, buffers)
        self.go_on()

    def go_on(self) -> None:
        """Between steps: begins to write the copy that waits, if there is one, and no rank writes. Collective."""
        if self._next is not None and self._all_are_idle():
            self._begin_next()

    def _all_are_idle(self) -> bool:
        """Whether no rank of the group writes. Collective."""
        is_busy = not self._background.is_idle
        if self._size == 1:
            return not is_busy
        [total] = self.group.all_reduce([np.array([is_busy, is_busy and self.leads], np.int64)])
        num_busy, num_busy_chiefs = map(int, total)
        if not num_busy_chiefs:  # who still waits for the chief to begin waits in vain
            self._settled_attempt = self._attempt - 1
        return num_busy == 0

    def _begin_next(self) -> None:
        """Has the copy that waits be written, if there is one; on all ranks."""
        if self._next is not None:
            self._background.submit(self._next)
            self._next = None

    def _leave_out(self, job: _Job) -> None:
        self._buffers.give_back(job.buffers)
        if self.leads and not self._has_left_out:
            self._has_left_out = True
            _LOGGER.warning(
                "no snapshot of step %d: the previous snapshot is still being written to %s. If this happens "
                "often, take snapshots less often (--snapshot-every).",
                job.step,
                self._store.location,
            )

    def finish(self, timeout_seconds: float) -> bool:
        """Waits until what has begun is written, or given up; whether that came in time."""
        return self._background.flush(timeout_seconds)

    def settle(self, timeout_seconds: float, *, is_leaving: bool = False) -> bool:
        """Has all that was taken be written, or given up; whether in time. None is unfinished then. Collective.

        Args:
            timeout_seconds: For the chief; the others have nothing to do that it does not wait for.
            is_leaving: Whether the job ends then: a fault is told in other words.
        """
        self._failures.is_leaving = is_leaving
        self._begin_next()
        in_time = not self.leads or self.finish(timeout_seconds)
        if self._size > 1:
            self.group.barrier()
        self._settled_attempt = self._attempt
        if not self.leads:
            in_time = self.finish(_SETTLING_SECONDS)
        elif in_time:
            self._store.clearing.sweep(self._writer)
        return in_time

    def free_memory(self) -> None:
        """Gives back the memory that is kept for the next snapshot."""
        self._buffers.release()

    def close(self) -> None:
        """Finishes and gives the directory back."""
        atexit.unregister(self.close)
        self._begin_next()
        self._background.__exit__(None, None, None)
        self.free_memory()
        if self.leads and self.finish(0.0):
            self._store.clearing.sweep(self._writer)
        self._held.close()

    def give_up(self) -> None:
        """Has the end of the process not wait for what is being written; the next start clears it away."""
        atexit.unregister(self.close)

    def _under_chaos(self, folder: Folder) -> Folder:
        self.chaos.keep(folder)
        return FaultyFolder(folder, self.chaos)  # type: ignore[return-value]  # it passes on what it does not define

    def _write(self, job: _Job) -> SnapshotInfo | None:
        if not self.leads:
            if self._is_begun(job):
                self._store.write_shard(job.step, self.layout.rank, job.shard, attempt=job.attempt)
            return None
        self._store.confirm_hold()
        self._failures.make_room(self.committed or self.found)
        own = self._store.write_shard(job.step, 0, job.shard, attempt=job.attempt)
        records: tuple[ShardRecord, ...] = (own,)
        give_up_at = time.monotonic() + _SHARDS_SECONDS
        while len(records) < self._size:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"only {len(records)} of {self._size} ranks have written their shard")
            time.sleep(_POLL_SECONDS)
            if job.attempt not in self._store.begun():
                raise ShardMissingError
            records = self._store.records(job.step, attempt=job.attempt)
        info = self._store.commit(job.step, job.meta, records, attempt=job.attempt)
        self._store.clearing.sweep(self._writer, job.attempt)  # all ranks are past the earlier ones
        return info

    def _is_begun(self, job: _Job) -> bool:
        """Waits for the chief to begin; False: it has given this one up."""
        pause_seconds = _POLL_SECONDS
        while job.attempt not in (begun := self._store.begun()):
            if job.attempt <= self._settled_attempt or any(attempt > job.attempt for attempt in begun):
                return False
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_POLL_SECONDS)
        return True

    def _done(self, job: _Job, outcome: Outcome[SnapshotInfo | None]) -> None:
        self._buffers.give_back(job.buffers)
        if outcome.error is None:
            self.committed = outcome.result or self.committed
            self._failures.written(job.step, outcome.result)
            return
        self._store.abandon(job.step, attempt=job.attempt)
        before = self.committed or self.found
        ends_fit = bool(job.meta.notes.get(ENDS_FIT))
        self._failures.failed(job.step, job.shard, outcome.error, ends_fit=ends_fit, before=before)
