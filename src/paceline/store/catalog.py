"""Which snapshots there are, and whether they are whole; which go: the old ones, and what was abandoned."""

import errno
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from paceline.store.folder import DamagedSnapshotError, Fault, Folder, OtherVersionError, unreadable
from paceline.store.manifest import (
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    DamagedSnapshot,
    SnapshotInfo,
    parsed_manifest,
)
from paceline.store.reading import SnapshotReader
from paceline.store.retention import Retention
from paceline.store.staging import SNAPSHOT_PREFIX, Writer, attempt_of

_NAME = re.compile(rf"{SNAPSHOT_PREFIX}(\d{{12,18}})(-[A-Za-z0-9_-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Search:
    """What the search for a snapshot to go on from came to.

    Args:
        found: The newest intact one, if there is any.
        skipped: Why newer ones were not taken: a line each.
    """

    found: SnapshotInfo | None
    skipped: tuple[str, ...]


class Catalog:
    """The snapshots of a folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._faulty: set[tuple[int, float, str]] = set()
        """The `order` of those in which a reading has found faults that the sizes of files do not show."""

    def entries(self) -> tuple[SnapshotInfo | DamagedSnapshot, ...]:
        """All snapshots, newest first; the manifests and the sizes of the files are looked at, not their contents."""
        unpublished = {*self._folder.unpublished()}
        matches = (_NAME.fullmatch(name) for name in self._folder.children("") if name not in unpublished)
        entries = [self._entry(match[0], int(match[1])) for match in matches if match]
        return tuple(sorted(entries, key=lambda entry: entry.order, reverse=True))

    def find(self, name: str) -> SnapshotInfo:
        """The snapshot called `name` (`SnapshotInfo.name`); its manifest is looked at, not its files.

        Raises:
            DamagedSnapshotError: there is none, or its manifest is damaged.
        """
        match = _NAME.fullmatch(name)
        if not match:
            raise DamagedSnapshotError(
                f"received {name[:60]!a}; expected the name of a snapshot, like step-000000000130"
            )
        return self._info(name, int(match[1]))

    def open(self, info: SnapshotInfo) -> SnapshotReader:
        """The contents of a snapshot; each file is checked as it is read."""
        return SnapshotReader(self._folder, info)

    def verify(self, info: SnapshotInfo, progress: Callable[[int], None] = lambda _: None) -> tuple[Fault, ...]:
        """Reads all of a snapshot; what is wrong with it.

        Args:
            info: Which.
            progress: Told how many bytes more have been read.
        """
        reader = self.open(info)
        faults = tuple(fault for shard in info.shards for fault in reader.verify(shard.rank, progress))
        (self._faulty.add if faults else self._faulty.discard)(info.order)
        return faults

    def was_faulty(self, info: SnapshotInfo) -> bool:
        """Whether `verify` has found something wrong with a snapshot, when it last read that one."""
        return info.order in self._faulty

    def newest_intact(self) -> Search:
        """The newest snapshot of which every byte is as it was written, and why newer ones are not taken.

        Raises:
            OSError: none was found, and some could not be read: to begin anew would throw away what may be there.
        """
        skipped: list[str] = []
        may_be_intact = False
        for entry in self.entries():
            faults = (entry.fault,) if isinstance(entry, DamagedSnapshot) else self.verify(entry)
            if not faults and isinstance(entry, SnapshotInfo):
                return Search(entry, tuple(skipped))
            may_be_intact |= not all(fault.is_damage for fault in faults)
            more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
            skipped.append(f"snapshot {entry.path} is not used: {faults[0]}{more} [snapshot-damaged]")
        if may_be_intact:
            raise OSError(
                errno.EIO,
                f"no snapshot could be read: {'; '.join(skipped)}",
                self._folder.location,
            )
        return Search(None, tuple(skipped))

    def _entry(self, name: str, step: int) -> SnapshotInfo | DamagedSnapshot:
        try:
            info = self._info(name, step)
            faults = self.open(info).size_faults()
        except DamagedSnapshotError as error:
            faults = (Fault(str(error), is_damage=not isinstance(error, OtherVersionError)),)
        except OSError as error:
            faults = (unreadable(name, error),)
        return DamagedSnapshot(name, self._path(name), step, faults[0]) if faults else info

    def _info(self, name: str, step: int) -> SnapshotInfo:
        path = f"{name}/{MANIFEST_FILE}"
        try:
            if (size_bytes := self._folder.size_bytes(path)) > MAX_MANIFEST_BYTES:
                raise DamagedSnapshotError(f"{path} has {size_bytes} bytes; expected at most {MAX_MANIFEST_BYTES}")
            with self._folder.reader(path) as file:
                data = file.read(MAX_MANIFEST_BYTES)
        except FileNotFoundError as error:
            raise DamagedSnapshotError(f"{path} is missing") from error
        return parsed_manifest(data, name, self._path(name), step)

    def _path(self, name: str) -> str:
        return f"{self._folder.location}/{name}"


logger = logging.getLogger("paceline")


@dataclass(frozen=True, slots=True)
class Pruned:
    """The names of the snapshots that stayed and that went (or would go), newest first."""

    kept: tuple[str, ...]
    removed: tuple[str, ...]


class Clearing:
    """Deletes. Who calls it is alone: the chief that holds the directory, or a person at the command line.

    Args:
        folder: The directory.
        catalog: What is in it.
        retention: Which intact snapshots stay after each commit; none: all.
        is_kept: Whether a snapshot stays however old it is, given it and the newest one; `prune` does not ask.
    """

    def __init__(
        self,
        folder: Folder,
        catalog: Catalog,
        retention: Retention | None,
        is_kept: Callable[[SnapshotInfo, SnapshotInfo], bool],
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._retention = retention
        self._is_kept = is_kept

    def retain(self, newest: SnapshotInfo) -> None:
        """After a commit: deletes what does not stay, judged by the sizes of the files and by what has been read."""
        if self._retention is None:
            return
        entries = self._catalog.entries()
        intact = [
            entry if isinstance(entry, SnapshotInfo) and not self._catalog.was_faulty(entry) else None
            for entry in entries
        ]
        for position in self._retention.removable(intact):
            entry = entries[position]
            name = entry.name
            if (info := intact[position]) is not None and self._is_kept(info, newest):
                continue
            if name == newest.name:  # a clock or a step that went back: what was just written stays
                continue
            try:
                self._folder.delete(name)
            except OSError as error:
                logger.warning("the old snapshot %s/%s cannot be removed (%s)", self._folder.location, name, error)

    def make_room(self, num_bytes: int, *, is_full: bool = False) -> tuple[str, ...]:
        """Before a write: deletes the oldest until there is room, as far as they are older than an intact one.

        That one is read, to be sure. Where even all older ones are too small to make room, none goes.

        Args:
            num_bytes: What is about to be written.
            is_full: Whether a write has found no room, whatever the file system says (a quota): then one goes at least.

        Returns:
            The names of those that went.

        Raises:
            OSError: one cannot be read or deleted.
        """
        if not is_full and self._has_room(num_bytes):
            return ()
        old = self._older_than_an_intact_one()
        if not self._has_room(num_bytes - sum(map(self._disk_bytes, old))):
            return ()
        removed: list[str] = []
        for entry in reversed(old):
            self._folder.delete(entry.name)
            removed.append(entry.name)
            if self._has_room(num_bytes):
                break
        return tuple(removed)

    def sweep(self, writer: Writer, before_attempt: int | None = None) -> None:
        """Removes what is left of the abandoned snapshots of a generation, when none of its ranks writes to them.

        Args:
            writer: The generation.
            before_attempt: Only earlier ones; none: all.
        """
        for name in self._folder.unpublished():
            attempt = attempt_of(name, writer)
            if attempt is None or (before_attempt is not None and attempt >= before_attempt):
                continue
            try:
                self._folder.delete(name)
            except Exception as error:  # whatever an object store's package raises
                logger.warning(
                    "the unfinished snapshot %s/%s cannot be removed (%s)", self._folder.location, name, error
                )

    def prune(self, retention: Retention, *, dry_run: bool = False) -> Pruned:
        """Deletes all but what `retention` keeps, which is read to be sure that it is intact.

        Raises:
            OSError: one cannot be deleted.
        """
        entries = self._catalog.entries()
        intact = [entry if isinstance(entry, SnapshotInfo) else None for entry in entries]
        read: set[int] = set()
        while True:  # another one takes the place of one that is found to be damaged
            doomed = retention.removable(intact)
            unread = {*range(len(intact))} - {*doomed} - read
            if not unread:
                break
            read.add(position := min(unread))
            if not self._is_intact(entries[position]):
                intact[position] = None
        for position in () if dry_run else doomed:
            self._folder.delete(entries[position].name)
        names = [entry.name for entry in entries]
        removed = tuple(names[position] for position in doomed)
        return Pruned(tuple(name for name in names if name not in removed), removed)

    def free_bytes(self) -> int | None:
        """How much more can be written, as far as the file system says."""
        return self._folder.free_bytes()

    def _older_than_an_intact_one(self) -> list[SnapshotInfo | DamagedSnapshot]:
        """What may go early, newest first."""
        entries = self._catalog.entries()
        for position, newest in enumerate(entries):
            if isinstance(newest, SnapshotInfo) and self._is_intact(newest):
                older = entries[position + 1 :]
                return [one for one in older if not (isinstance(one, SnapshotInfo) and self._is_kept(one, newest))]
        return []

    def _disk_bytes(self, entry: SnapshotInfo | DamagedSnapshot) -> int:
        return entry.disk_bytes if isinstance(entry, SnapshotInfo) else self._bytes_below(entry.name)

    def _bytes_below(self, path: str) -> int:
        try:
            return self._folder.size_bytes(path)
        except FileNotFoundError:  # a directory
            return sum(self._bytes_below(f"{path}/{name}") for name in self._folder.children(path))

    def _is_intact(self, entry: SnapshotInfo | DamagedSnapshot) -> bool:
        return isinstance(entry, SnapshotInfo) and not self._catalog.verify(entry)

    def _has_room(self, num_bytes: int) -> bool:
        free_bytes = self.free_bytes()
        return free_bytes is None or free_bytes >= num_bytes
