"""The files in which each rank keeps its steps for ``--observe DIR``: ``DIR/ranks``; written by ranks, read by reports.

    0003-1.steps       single phases of the last steps, of rank 3 in generation 1
    0003-1.blocks      sums over all steps, in at most some thousand blocks
    0000-1.waiting     who has waited, and for whom, in as many: the chief's
    0003-1.operations  TensorFlow's operations in the steps of ``--timeline``

A file is a line of JSON and then rows of 64-bit integers; a row that is not whole is not there. Times are nanoseconds
of the monotonic clock of the rank's host.

Of single phases a row is an *entry*: the upper bits are a number, the lower four say which.

    phase p       it ended at that time; the one that began the file began at `BEGAN`
    FIRST, AWAITED  the step that has just ended had no first message: its first phase was `INPUT` all the time (so
                  long), of which it awaited its batch so long, and computed then; −1: nobody knows
    STEP          the optimizer step of the job that is done

A row of operations is an `OPERATION`.
"""

import array
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from paceline.wire.codec import Decoder, GarbledError, Record, encode

RANKS = "ranks"
"""The folder of these files within DIR."""
ENTRY_BITS = 5
_ROW_BYTES = 8


class Entry(IntEnum):
    """What an entry says that is not of a phase."""

    FIRST = 28
    AWAITED = 29
    BEGAN = 30
    STEP = 31


class Header(Record, frozen=True):
    """The first line of a file."""

    job_id: str
    rank: int
    generation: int
    host: str
    names: tuple[str, ...]
    """Of the phases, by number; in a file of operations of those and of their threads."""
    width: int
    """How many numbers a row has."""
    monotonic_ns: int
    wall_ns: int
    """Since 1970, at that time: for hosts whose clocks nobody has measured."""


KINDS = ("steps", "blocks", "waiting", "operations")
BLOCK = ("first_step", "last_step", "began_ns", "ended_ns")
"""How a row of ``.blocks`` and of ``.waiting`` begins. The first goes on with nanoseconds in each phase; the other with
those that each rank has waited, and then those that all others together have waited for each."""
OPERATION = ("thread", "name", "began_ns", "ended_ns")
"""A row of ``.operations``; the first two are places among the names of the header."""

_NAME = re.compile(rf"(\d+)-(\d+)\.({'|'.join(KINDS)})", re.ASCII)


def name_of(rank: int, generation: int, kind: str) -> str:
    """The name of a file.

    >>> name_of(3, 1, "steps")
    '0003-1.steps'
    """
    return f"{rank:04}-{generation}.{kind}"


def steps_of_timeline(text: str) -> range:
    """The optimizer steps that ``--timeline`` names; none, if the last one comes before the first.

    >>> steps_of_timeline("100:110"), steps_of_timeline("7")
    (range(100, 111), range(7, 8))
    """
    first, _, last = text.partition(":")
    return range(int(first), int(last or first) + 1)


def is_step_file(path: Path) -> bool:
    """Whether it has such a name."""
    return _NAME.fullmatch(path.name.removesuffix(".partial")) is not None


def head_of(header: Header) -> bytes:
    """How a file begins."""
    return encode(header) + b"\n"


@dataclass(frozen=True)
class StepFile:
    """A file that was read."""

    header: Header
    kind: str
    numbers: Sequence[int]
    """Row by row."""

    def rows(self) -> Iterator[Sequence[int]]:
        """Each row."""
        width = self.header.width
        for first in range(0, len(self.numbers), width):
            yield self.numbers[first : first + width]


_decode = Decoder[Header](Header)


def read_step_files(folder: Path, job_id: str | None = None) -> list[StepFile]:
    """All files of a folder that can be read, by generation and rank; of that job.

    Args:
        folder: Which; one that is not there has no files.
        job_id: The name of the job; None: of any.

    Raises:
        OSError: a file cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*")):
        if (match := _NAME.fullmatch(path.name)) is None:
            continue
        head, _, body = path.read_bytes().partition(b"\n")
        try:
            header = _decode(head)
        except GarbledError:  # written in part, on a full disk
            continue
        numbers = array.array("q")
        row_bytes = _ROW_BYTES * header.width
        numbers.frombytes(body[: len(body) // row_bytes * row_bytes])
        if sys.byteorder == "big":
            numbers.byteswap()
        if job_id in (None, header.job_id):
            found.append(StepFile(header, match[3], numbers))
    return sorted(found, key=lambda one: (one.header.generation, one.header.rank, one.kind))
