"""Log files of workers: a folder for each job and generation, so that no run overwrites another's files.

logs/3f2a…/generation-1/job_0.log     by rank; also what the launcher said meanwhile, so that the end of a rank that
logs/3f2a…/generation-1/job_1.log     failed has its traceback, and the end of another one why it was stopped
logs/3f2a…/generation-1/ps_0.log      of a process outside of the world, by its role
logs/3f2a…/generation-2/…
logs/latest ─► 3f2a…/generation-2
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from paceline.cluster.launched import WorkerIdentity

LATEST = "latest"


class LogFile:
    """A worker's own file: its lines without rank and colours, both streams, as a terminal would show them.

    A disk that is full must not stop the training: what cannot be written is left out, and a line in the file says so
    when there is room again.

    Args:
        path: The file; appended to.
        complain: Told once that something could not be written, and why.
    """

    def __init__(self, path: Path, complain: Callable[[OSError], None]) -> None:
        self._path = path
        self._complain = complain
        self._descriptor: int | None = None
        self._num_lost = 0
        """Lines that could not be written since the last one that could."""
        self._is_torn = False
        """Whether the last line of the file has no end."""

    def __enter__(self) -> "LogFile":
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def write(self, lines: Iterable[str]) -> None:
        """Appends `lines` at once; nothing is buffered, so `tail -f` follows."""
        if self._descriptor is None:
            return
        texts = list(lines)
        lost = (
            [f"paceline: lines left out here, which could not be written: {self._num_lost}"] if self._num_lost else []
        )
        data = "".join(f"{line}\n" for line in (*lost, *texts)).encode("utf-8", "replace")
        data = b"\n" + data if self._is_torn else data
        try:
            while data:
                self._is_torn = data[(num_written := os.write(self._descriptor, data)) - 1 : num_written] != b"\n"
                data = data[num_written:]
        except OSError as fault:
            self._num_lost += len(texts)
            self._complain(fault)
        else:
            self._num_lost = 0

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class WorkerLogs:
    """The log files of some ranks of a job, one generation after the other; a context manager that closes them.

    Args:
        log_dir: The folder that the user has named; None: no files.
        say: Tells the user, in a line; nothing without it.
    """

    def __init__(self, log_dir: Path | None, say: Callable[[str], None] = lambda _: None) -> None:
        self._log_dir = log_dir
        self._say = say
        self._has_complained = False
        self._files: dict[int, LogFile] = {}
        self._open = ExitStack()
        self._had_files = False

    def __enter__(self) -> "WorkerLogs":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def begin(self, job_id: str, generation: int, processes: Iterable[WorkerIdentity]) -> None:
        """Makes the files of a generation's `processes`, closes those of the one before, and points ``latest`` at them.

        Raises:
            OSError: the first ones cannot be made. Where later ones cannot, a line says so.
        """
        self._open.close()
        self._files = {}
        if self._log_dir is None:
            return
        folder = Path(job_id, f"generation-{generation}")
        try:
            (self._log_dir / folder).mkdir(parents=True, exist_ok=True)
            for one in processes:
                name = f"job_{one.rank}.log" if one.in_world else f"{one.task.type}_{one.task.index}.log"
                self._files[one.rank] = self._open.enter_context(LogFile(self._log_dir / folder / name, self._complain))
            self._had_files = True
            _point(self._log_dir / LATEST, folder)
        except OSError as fault:
            if not self._had_files:
                raise
            self._complain(fault)

    def _complain(self, fault: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True  # first: the words go to the log files, too
            self._say(
                f"log files in {self._log_dir} cannot be written ({fault.strerror}): what the workers print is missing "
                "there until they can be written again; the job continues"
            )

    def of(self, rank: int) -> LogFile | None:
        """The file of `rank`; None: it has none."""
        return self._files.get(rank)

    def note(self, lines: Sequence[str]) -> None:
        """What the launcher says to the user."""
        for file in self._files.values():
            file.write(lines)


def _point(link: Path, target: Path) -> None:
    """Makes `link` lead to `target`; nodes that share the disk may do it at once."""
    new = link.with_name(f".{link.name}-{os.urandom(4).hex()}")
    with contextlib.suppress(OSError):  # the file system has no links, or the user keeps something by that name
        new.symlink_to(target)
        try:
            new.replace(link)
        except OSError:
            new.unlink()
