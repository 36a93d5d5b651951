"""Snapshots that could not be written: what is logged and how often, and how room is made for the next one."""

import logging

from paceline.events.bus import bus
from paceline.events.worker_events import SnapshotFailed, SnapshotTaken
from paceline.store.local_folder import NO_ROOM
from paceline.store.manifest import SnapshotInfo
from paceline.store.shards import Shard
from paceline.store.snapshots import SnapshotStore

_LOGGER = logging.getLogger("paceline")

_TOLD_EVERY = 10
"""Of faults in a row the first one is told, the tenth, the hundredth."""


class ShardMissingError(RuntimeError):
    """Another rank has given a snapshot up, and has said why; the chief's only."""

    def __init__(self) -> None:
        super().__init__("its directory was removed, probably because another rank could not write its shard")


class WriteFailures:
    """What does not come to a snapshot on this rank; used by the thread that writes.

    Args:
        store: Where the ranks write.
        rank: This one.
        leads: Whether it commits what they have written.
    """

    def __init__(self, store: SnapshotStore, rank: int, *, leads: bool) -> None:
        self.is_leaving = False
        """Whether the job ends with the one that is being written."""
        self._rank = rank
        self._leads = leads
        self._store = store
        self._num_failed = 0
        """Since the last one that was written."""
        self._tell_at = 1
        self._is_full = False
        self._has_made_room = False

    def make_room(self, like: SnapshotInfo | None) -> None:
        """For one more `like` the last one, if it is known: the oldest go before their time. The chief only."""
        if like is None:
            return
        num_bytes = like.disk_bytes
        removed = self._store.clearing.make_room(num_bytes, is_full=self._is_full)
        self._is_full = False
        if removed and not self._has_made_room:
            self._has_made_room = True
            _LOGGER.warning(
                "%s has no room for another snapshot of %s bytes: %s was removed early, and more will follow. "
                "Free disk space, or keep fewer snapshots (--snapshot-keep).",
                self._store.location,
                f"{num_bytes:,}",
                ", ".join(removed),
            )

    def written(self, step: int, info: SnapshotInfo | None) -> None:
        """That of `step` is, or this rank's shard of it; `info`: the whole one, on the chief."""
        if info is not None:
            bus.emit(SnapshotTaken(self._rank, step, info.name, info.disk_bytes))
        if self._num_failed > 1 and self._leads:
            _LOGGER.info("snapshots can be written again, from step %d on; %d snapshots failed", step, self._num_failed)
        self._num_failed, self._tell_at = 0, 1

    def failed(self, step: int, shard: Shard, error: Exception, *, ends_fit: bool, before: SnapshotInfo | None) -> None:
        """That of `step` is not, or not this rank's `shard` of it.

        Args:
            step: Which.
            shard: What should have been written.
            error: Why it was not.
            ends_fit: Whether it is the last one of its `fit`.
            before: The newest one that this rank knows of; the chief knows it.
        """
        number = getattr(error, "errno", None)
        self._is_full |= number in NO_ROOM
        if isinstance(error, FileNotFoundError) and self._store.is_there():
            if not self._leads:
                return  # the chief has given this snapshot up, and says so
            error = ShardMissingError()
        bus.emit(SnapshotFailed(self._rank, step, f"{type(error).__name__}: {error}"))
        self._num_failed += 1
        if self._num_failed < self._tell_at and not (ends_fit or self.is_leaving):
            return
        again = f" ({self._num_failed} in a row)" if self._num_failed > 1 else ""
        self._tell_at *= _TOLD_EVERY
        _LOGGER.error(
            "NO SNAPSHOT of step %d could be written to %s%s (%s): %s.%s%s",
            step,
            self._store.location,
            again,
            type(error).__name__,
            error,
            self._room(shard) if number in NO_ROOM else "",
            self._what_follows(before, ends_fit=ends_fit) if self._leads else "",
        )

    def _room(self, shard: Shard) -> str:
        needed = sum(array.nbytes for array in shard.tensors.values())
        free = self._store.clearing.free_bytes()
        # Not what was free at the failure: the unfinished shards are gone since, and others write there, too.
        now = "" if free is None else f" Now, after the failed write, {free:,} bytes are free."
        return (
            f" There was no room for this rank's {needed:,} bytes beside what other ranks and programs wrote.{now}"
            " Free disk space, or keep fewer snapshots (--snapshot-keep)."
        )

    def _what_follows(self, before: SnapshotInfo | None, *, ends_fit: bool) -> str:
        resumes = "starts from the beginning" if before is None else f"resumes from the snapshot of step {before.step}"
        if self.is_leaving:
            return f" The job stops now; a new run {resumes}."
        if ends_fit:
            return f" This was the last snapshot of its fit; a new run {resumes}."
        return " Training continues; the next snapshot is taken at its usual time."


def tell_of_leaving(
    step: int, epoch: int, committed: SnapshotInfo | None, found: SnapshotInfo | None, *, in_time: bool, launched: bool
) -> None:
    """Logs after which step a job stops that was told to, and from where it can resume. The chief only.

    Args:
        step: After which all ranks stop.
        epoch: From 0.
        committed: The newest snapshot that was written.
        found: That from which the run went on.
        in_time: Whether all that could be written was.
        launched: Whether there is a launcher, which says last what to type.
    """
    before = committed or found
    again = "" if launched else ". Run the same command again to continue from it"
    if committed is not None and committed.step == step:
        text = "told to stop: all ranks stop after step %d, epoch %d; the snapshot is %s%s"
        _LOGGER.info(text, step, epoch + 1, committed.path, again)
        return
    late = "" if in_time else " in time"
    if before is not None:
        then = f"; the newest one is {before.path}{again}"
    else:
        again = "" if launched else ". Run the same command again to start from the beginning"
        then = f"; there is no other one{again}"
    _LOGGER.error(
        "told to stop after step %d, but the snapshot of this step could not be written%s%s", step, late, then
    )
