"""The store: a directory of snapshots, each of which exists whole or not at all.

    every rank   write_shard ──► temporary directory: files, each on disk before it counts
    the chief    commit ──────► manifest with all checksums ──► rename ──► the oldest ones go
    any process  newest_intact ──► open

Whatever dies in between leaves a temporary directory, which the next start removes. Who tells the chief that all shards
are written is left to the caller: by message, or through `records`.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.store.catalog import Catalog, Clearing, Pruned
from paceline.store.directory_lock import LOCK_FILE, DirectoryLock, locked_for
from paceline.store.folder import DamagedSnapshotError, Folder
from paceline.store.json_bytes import read, sealed, unsealed
from paceline.store.local_folder import LocalFolder
from paceline.store.manifest import (
    MANIFEST_FILE,
    SnapshotInfo,
    SnapshotMeta,
    manifest_bytes,
    parsed_manifest,
)
from paceline.store.remote_folder import RemoteFolder
from paceline.store.retention import parse_retention
from paceline.store.shards import Shard, ShardRecord, rank_folder
from paceline.store.staging import RECORD_FILE, SNAPSHOT_PREFIX, Staging, Writer, snapshot_name
from paceline.wire.codec import Decoder, encode

__all__ = ["Pruned", "SnapshotStore", "Writer"]

logger = logging.getLogger("paceline")

_PROBE_PREFIX = ".probe-"
_MIN_SPACING_SECONDS = 0.001
_MAX_NOTE_BYTES = 16 << 20
_note = Decoder[dict[str, int]](dict[str, int])


class SnapshotStore(Catalog):
    """A directory of snapshots, to write and to clear; `Catalog` reads it.

        store = SnapshotStore("/shared/run-7", keep=3, writer=Writer(job_id, generation))
        with store.hold():                                                      # the chief, while the job lives
            record = store.write_shard(130, rank, Shard(tensors, state))          # every rank
            store.commit(130, SnapshotMeta(epoch, fit_call, world_size), records)   # the chief, with all ranks' records

    Args:
        directory: A directory that all hosts see, or the address of one in an object store (``s3://bucket/run-7``).
        keep: Which intact snapshots stay after each commit, as `parse_retention` reads it; none: all.
        writer: Who writes; not needed to read, verify and prune.
        is_kept: Whether a snapshot stays however old it is, given it and the newest one; `prune` does not ask.
        clock: Seconds since 1970.
        around: Puts something around the directory, which then sees all that is read and written.

    Raises:
        ConfigurationError: a package that this kind of object store needs is not installed.
        ValueError: `keep` is none of the policies.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep: int | str | None = 3,
        writer: Writer | None = None,
        is_kept: Callable[[SnapshotInfo, SnapshotInfo], bool] = lambda _info, _newest: False,
        clock: Callable[[], float] = time.time,
        around: Callable[[Folder], Folder] = lambda folder: folder,
    ) -> None:
        super().__init__(around(_folder_at(directory)))
        self._writer = writer
        self._lock: DirectoryLock | None = None
        self._clock = clock
        self.clearing = Clearing(self._folder, self, None if keep is None else parse_retention(keep), is_kept)
        """What goes."""

    @property
    def location(self) -> str:
        """The directory, for people."""
        return self._folder.location

    # Writing

    @contextmanager
    def hold(self, wait_seconds: float = 10.0) -> Iterator[tuple[str, ...]]:
        """The chief's lock on the directory for the life of its job, given back by the kernel if it dies.

        Makes the directory, and removes what jobs that have died left behind. Gives lines to log.

        Args:
            wait_seconds: For a holder that is about to go, as the chief of the generation before is.

        Raises (on entering):
            ConfigurationError: another job holds it.
            OSError: it cannot be made or read.
        """
        with locked_for(self._folder, self._owner(), wait_seconds) as lock:
            self._lock = lock
            try:
                yield lock.lines
            finally:
                self._lock = None

    def confirm_hold(self) -> None:
        """See `DirectoryLock.confirm`; without effect if it is not held."""
        if self._lock is not None:
            self._lock.confirm()

    def write_shard(self, step: int, rank: int, shard: Shard, *, attempt: int = 0) -> ShardRecord:
        """Writes one rank's shard of the snapshot at `step`: on disk when it returns. Every rank, in any thread.

        The chief's makes the directory; the others' need it (`begun`).

        Args:
            step: Optimizer steps of the whole job; the same on all ranks.
            rank: Whose.
            shard: What.
            attempt: The same on all ranks; another one for each try at the same step in a generation.

        Raises:
            TypeError, ValueError: the shard holds what cannot be stored.
            FileNotFoundError: the chief has not begun, or this was abandoned meanwhile.
            OSError: the disk is full, the directory has gone.
        """
        return self._staging().write(step, attempt, rank, shard)

    def begun(self) -> frozenset[int]:
        """The attempts of this generation for which the chief has made a directory that is still there."""
        return frozenset(self._staging().begun())

    def records(self, step: int, *, attempt: int = 0) -> tuple[ShardRecord, ...]:
        """The shards that are complete in the directory by now, by rank: so a chief learns of them without messages."""
        return self._staging().records(step, attempt)

    def commit(
        self, step: int, meta: SnapshotMeta, records: Sequence[ShardRecord], *, attempt: int = 0
    ) -> SnapshotInfo:
        """Makes the shards of all ranks a snapshot, then deletes the oldest ones. The chief only.

        What goes wrong with deleting is logged.

        Raises:
            ValueError: there is not one record of each rank; the notes are no JSON (or ``TypeError``).
            OSError: nothing is committed (`abandon` what is there): a shard is not in the directory, or it cannot be
                written.
            ConfigurationError: nothing is committed: the directory was removed, and another job has it now.
        """
        shards = tuple(sorted(records, key=lambda record: record.rank))
        ranks = [shard.rank for shard in shards]
        if ranks != [*range(meta.world_size)] or not shards:
            raise ValueError(f"received shards of the ranks {ranks}; expected 0 to {meta.world_size - 1}, each once")
        self.confirm_hold()
        staging = self._staging().directory(step, attempt)
        self._check_presence(staging, shards)
        same_step = [entry.order[1] for entry in self.entries() if entry.step == step]
        created_at_seconds = max([self._clock(), *(earlier + _MIN_SPACING_SECONDS for earlier in same_step)])
        data = manifest_bytes(step, created_at_seconds, meta, shards)
        for shard in shards:  # a snapshot holds nothing that no checksum covers
            self._folder.delete(f"{staging}/{rank_folder(shard.rank)}/{RECORD_FILE}")
        with self._folder.writer(f"{staging}/{MANIFEST_FILE}") as file:
            file.write(data)
        name = self._folder.publish(staging, snapshot_name(step))
        # From here on nothing may be raised: the caller would abandon what is a snapshot now.
        info = parsed_manifest(data, name, f"{self.location}/{name}", step)
        try:
            self.clearing.retain(info)
        except Exception as error:
            logger.warning("old snapshots in %s cannot be removed (%s)", self.location, error)
        return info

    def abandon(self, step: int, *, attempt: int = 0) -> None:
        """Removes the shards of a snapshot that will not be committed; what cannot be removed stays. Any rank: by that
        the others know.
        """
        try:
            self._folder.delete(self._staging().directory(step, attempt))
        except Exception as error:  # whatever an object store's package raises: this is no reason to stop training
            logger.warning("an unfinished snapshot of step %d in %s cannot be removed (%s)", step, self.location, error)

    def noted_first(self, name: str, value: Mapping[str, int]) -> Mapping[str, int] | None:
        """What was noted under `name` before; else None, and `value`, numbers by their names, is noted now.

        So a job knows what it began with before it has a first snapshot.
        """
        path = f"{name}.json"
        with suppress(OSError, DamagedSnapshotError), self._folder.reader(path) as file:
            return read(_note, unsealed(file.read(_MAX_NOTE_BYTES), path), path)
        try:
            with self._folder.writer(path) as file:
                file.write(sealed(encode(value)))
        except OSError as error:
            logger.warning("%s/%s cannot be written (%s)", self.location, path, error)
        return None

    # Reading

    def is_there(self) -> bool:
        """Whether the directory is, as one that a chief holds is."""
        return bool(self._folder.children(""))

    def was_released(self) -> bool:
        """Whether the job that last held the directory has given it back in order, and nobody holds it now."""
        with suppress(OSError), self._folder.reader(LOCK_FILE) as file:
            return not file.read(1)
        return False

    def prune(self, keep: int | str, *, dry_run: bool = False) -> Pruned:
        """See `Clearing.prune`; `keep` is what `parse_retention` reads."""
        return self.clearing.prune(parse_retention(keep), dry_run=dry_run)

    # Does every host see the same directory?

    def write_probe(self, token: str) -> None:
        """Writes a file that all hosts must see. The chief, before the start; then `sees_probe` on each host."""
        self._folder.make("")
        with self._folder.writer(f"{_PROBE_PREFIX}{token}") as file:
            file.write(token.encode())

    def sees_probe(self, token: str) -> bool:
        """Whether the file of `write_probe` is here. A network file system may show it a moment later."""
        return f"{_PROBE_PREFIX}{token}" in self._folder.children("")

    def remove_probe(self, token: str) -> None:
        """Removes the file of `write_probe`."""
        self._folder.delete(f"{_PROBE_PREFIX}{token}")

    def _check_presence(self, staging: str, shards: tuple[ShardRecord, ...]) -> None:
        for shard in shards:
            for file in shard.files:
                path = f"{staging}/{rank_folder(shard.rank)}/{file.name}"
                if self._folder.size_bytes(path) != file.size_bytes:
                    raise OSError(
                        errno.EIO,
                        f"rank {shard.rank} wrote {file.size_bytes} bytes that this host cannot see: is the "
                        "directory shared by all hosts?",
                        path,
                    )

    def _staging(self) -> Staging:
        return Staging(self._folder, self._owner())

    def _owner(self) -> Writer:
        assert self._writer is not None, "a store that writes needs a writer"
        return self._writer


def _folder_at(directory: str | Path) -> Folder:
    if "://" in str(directory):
        return RemoteFolder(str(directory), MANIFEST_FILE, SNAPSHOT_PREFIX)
    return LocalFolder(Path(os.path.expanduser(directory)))  # noqa: PTH111  # as in `cluster.options`
