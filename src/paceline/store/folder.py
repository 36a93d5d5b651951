"""What a store of snapshots needs of a file system or of an object store, and what can be wrong with a snapshot.

A snapshot appears in one moment. On a file system that moment is the renaming of its directory; an object store has no
renaming, and there the moment is the appearance of its manifest, which is written last. Both are behind `publish`.

A disk that fails to answer is an ``OSError`` and stays one: what is stored may be whole.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO


class Folder(ABC):
    """A directory with snapshots in it. All paths are relative, with ``/``; ``""`` is the directory itself.

    Each method may raise ``OSError``.
    """

    location: str
    """For people."""

    staging_prefix: str
    """What the name of a directory begins with until it is published."""

    @abstractmethod
    def children(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted; none if there is no such directory."""

    @abstractmethod
    def size_bytes(self, path: str) -> int:
        """Of a file.

        Raises:
            FileNotFoundError: there is no ordinary file.
        """

    @abstractmethod
    def reader(self, path: str) -> BinaryIO:
        """A file, open to read."""

    @abstractmethod
    def make(self, path: str, *, with_parents: bool = False) -> None:
        """Makes a directory, if it is not there; those that it is in only `with_parents`.

        Raises:
            FileNotFoundError: that which it should be in is not there, on a file system.
        """

    @abstractmethod
    def writer(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file in a directory that is there, open to write. When the block has ended well, it is on disk."""

    @abstractmethod
    def free_bytes(self) -> int | None:
        """How much more can be written, as far as the file system says; None: it does not, or is not there."""

    @abstractmethod
    def announce(self, path: str, data: bytes) -> None:
        """A small new file for processes that look for it now: whole when it is seen, and then this call needs nothing
        of its directory any more, which may be published at once. After a crash nobody asks for it.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it; what is not there is no error.

        A snapshot stops being one before the first of its files goes.
        """

    @abstractmethod
    def publish(self, staging: str, name: str) -> str:
        """Makes the snapshot in the directory `staging` appear; returns its name, which begins with `name`."""

    @abstractmethod
    def unpublished(self) -> tuple[str, ...]:
        """The directories that were begun and have not been published."""

    @abstractmethod
    def lock(self, path: str, text: str) -> "Lock":
        """Tries to lock the file `path` for this process and to write `text` into it; does not wait.

        Where snapshots can be read and nothing be written, it counts as held, and as not certain.
        """


class Lock(ABC):
    """What came of an attempt to lock; the kernel gives back the lock of a process that has died."""

    is_held: bool
    """Whether this process has it now."""

    is_certain: bool
    """Whether nobody else can have it. False where there are no locks; then it counts as held."""

    holder: str
    """What the one that has it has written."""

    @abstractmethod
    def is_in_place(self) -> bool:
        """Whether others still meet it: not if somebody has removed the directory."""

    @abstractmethod
    def release(self) -> None:
        """Gives it back; without effect if it is not held."""


class DamagedSnapshotError(RuntimeError):
    """What was read is not what was written; whoever looks for a snapshot to go on from takes the one before."""


class OtherVersionError(DamagedSnapshotError):
    """Another version of Paceline has written it: this one cannot read it, and nobody knows that it is damaged."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a snapshot.

    Args:
        text: One line.
        is_damage: False if it could not be read, so that nobody knows.
    """

    text: str
    is_damage: bool = True

    def __str__(self) -> str:
        return self.text


def unreadable(path: str, error: OSError) -> Fault:
    """The fault of a file that cannot be read."""
    return Fault(f"{path} cannot be read ({error.strerror or error})", is_damage=False)
