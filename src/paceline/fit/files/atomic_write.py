"""Writes a file or directory next to its final path and renames it: readers see the old or the new one, complete.

    /models/digits.keras                                      what readers open
    /models/.digits.keras.OWNER-1.unfinished/digits.keras     what is being written, then renamed onto it

What a process that was killed has left is removed by the next one that writes the same file: at once where it can be
told that the owner (`Owner`) is no more, else (another container, another host, a machine started again) when
nothing in it has changed for a day.
"""

import contextlib
import ctypes
import errno
import itertools
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STARTED_FIELD = 19
"""Position of `starttime` in `/proc/PID/stat` after the command's closing bracket."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, wherever it runs."""

    kernel: str
    namespace: int
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.kernel}-{self.namespace}-{self.pid}-{self.started}"


PATTERN = r"\w+-\d+-\d+-\d+"
"""What `str` of an owner looks like, as a regular expression."""


def parse_owner(text: str) -> Owner:
    """The owner whose `str` is `text`, which must match `PATTERN`."""
    kernel, namespace, pid, started = text.split("-")
    return Owner(kernel, int(namespace), int(pid), int(started))


def this_process() -> Owner:
    """The owner of what this process writes."""
    try:
        # Numbers as `/proc` counts, where this process looks others up, too.
        pid = int((_PROC / "self").readlink().name)
        kernel = (_PROC / "sys/kernel/random/boot_id").read_text().replace("-", "").strip()
        return Owner(kernel, (_PROC / "self/ns/pid").stat().st_ino, pid, started_at(pid) or 0)
    except OSError:
        return Owner(re.sub(r"\W|_", "", socket.gethostname()) or "host", 0, os.getpid(), 0)


def started_at(pid: int) -> int | None:
    """When process `pid` of this namespace was started, in ticks; None if there is none, 0 if nobody knows."""
    try:
        return int((_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[_STARTED_FIELD])
    except (FileNotFoundError, ProcessLookupError):  # the second: it has ended while it was looked at
        if _PROC.joinpath("self").exists():
            return None
    except (OSError, ValueError, IndexError):
        return 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def has_ended(owner: Owner, here: Owner, started: Callable[[int], int | None]) -> bool | None:
    """Whether `owner` is no more; None if that cannot be told from `here`.

    Args:
        owner: Of whom one asks.
        here: The owner who asks.
        started: Tells of a process of `here`'s namespace, as `started_at` does.
    """
    if (owner.kernel, owner.namespace) != (here.kernel, here.namespace):
        return None
    found = started(owner.pid)
    return found is None or (found != 0 and owner.started != 0 and found != owner.started)


_MAX_NAME = 100
_ABANDONED_SECONDS = 24 * 3600.0
_numbers = itertools.count(1)

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def replacing(
    path: str, *, makes_parents: bool = False, turn: AbstractContextManager[bool] | None = None
) -> Iterator[str]:
    """Yields a path to write to, of the same name; what is there at the end takes the place of `path`.

    Several files may be written beside each other; a JSON file, which lists the others, is renamed last. In a directory
    that was there before, what the new one does not have stays.

    Yields `path` itself where nothing can be written beside it: the writer then does, or says, what it always would.

    Args:
        path: A file or directory, or neither yet.
        makes_parents: Whether the writer would make the directories above `path`.
        turn: Entered when all is written; says whether it takes the place of `path`, or is thrown away because another
            process has put the same there. None: it does.

    Raises:
        OSError: a directory is in the place of a file, or the other way round.
    """
    target = Path(os.path.realpath(path))
    if makes_parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _made_beside(target) if _can_be_replaced(target) else None
    turn = turn or nullcontext(True)
    if unfinished is None:
        yield path
        with turn:
            return
    try:
        yield str(unfinished / target.name)
        with turn as is_ours:
            entries = sorted(unfinished.iterdir(), key=lambda entry: (entry.suffix == ".json", entry.name))
            for entry in entries if is_ours else ():
                _put(entry, target.parent / entry.name)
    except OSError as fault:
        if str(fault.filename or "").startswith(str(unfinished)):
            fault.filename = path
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _can_be_replaced(target: Path) -> bool:
    if not target.name or not os.access(target.parent, os.W_OK | os.X_OK):
        return False
    with contextlib.suppress(FileNotFoundError):
        mode = target.stat().st_mode
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return True


def _made_beside(target: Path) -> Path | None:
    begin = f".{target.name[:_MAX_NAME]}."
    directory = target.parent / f"{begin}{this_process()}-{next(_numbers)}.unfinished"
    try:
        directory.mkdir()
    except OSError:
        return None
    _remove_left_over(begin, directory)
    return directory


def _remove_left_over(begin: str, own: Path) -> None:
    name = re.compile(rf"{re.escape(begin)}({PATTERN})-\d+\.unfinished")
    here = this_process()
    with contextlib.suppress(OSError):
        # The file system's own clock: that of this host may be another one.
        abandoned = own.stat().st_mtime - _ABANDONED_SECONDS
        for entry in own.parent.iterdir():
            match = name.fullmatch(entry.name)
            if match is None:
                continue
            ended = has_ended(parse_owner(match[1]), here, started_at)
            if ended or (ended is None and _has_not_changed_since(abandoned, entry)):
                shutil.rmtree(entry, ignore_errors=True)


def _has_not_changed_since(moment: float, directory: Path) -> bool:
    try:
        return all(entry.lstat().st_mtime < moment for entry in (directory, *directory.rglob("*")))
    except OSError:  # whoever writes it, or clears it away, is at work
        return False


def _put(new: Path, target: Path) -> None:
    if new.is_dir():
        _put_directory(new, target)
        return
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    with contextlib.suppress(OSError):
        shutil.copymode(target, new)
    new.replace(target)


def _put_directory(new: Path, target: Path) -> None:
    if not target.exists():
        try:
            new.rename(target)
            return
        except OSError:
            if not target.exists():
                raise
            # A rank on another host, with the same file system, was faster.
    if not target.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    with contextlib.suppress(OSError):
        shutil.copymode(target, new)
    if {entry.name for entry in target.iterdir()} <= {entry.name for entry in new.iterdir()} and _exchanged(
        new, target
    ):
        return
    for entry in new.iterdir():
        _put(entry, target / entry.name)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the two have changed places, at once (Linux, and file systems that can)."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)
