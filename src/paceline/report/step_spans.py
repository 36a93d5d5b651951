"""The single phases of a rank, put together to steps; pure.

A step begins with its input and ends when its callbacks have run. What lies between steps stands by itself: validation,
the start with its tracing, callbacks at the ends of epochs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from paceline.observe.step_files import BLOCK, ENTRY_BITS, Entry, StepFile

_KIND = (1 << ENTRY_BITS) - 1
_APART = ("start", "validation")


class Span(NamedTuple):
    """A phase that a rank was in."""

    phase: str
    began: int
    ended: int


@dataclass(frozen=True)
class Step:
    """What a rank has done, one phase after the other; times are of the clock of its host."""

    spans: tuple[Span, ...]
    number: int | None = None
    """The optimizer step of the job; None: it is none, or did not come to its end."""
    is_step: bool = True

    @property
    def began(self) -> int:
        """Of the first phase."""
        return self.spans[0].began

    @property
    def ended(self) -> int:
        """Of the last one."""
        return self.spans[-1].ended

    def lasted(self, *phases: str) -> int:
        """How long these phases took."""
        return sum(span.ended - span.began for span in self.spans if span.phase in phases)


@dataclass(frozen=True)
class Block:
    """The sums of several steps of a rank, in nanoseconds."""

    first_step: int
    last_step: int
    began: int
    ended: int
    by_phase: dict[str, int]


def steps_of(file: StepFile) -> Iterator[Step]:
    """The steps in a file of single phases, and what lies between them, in order."""
    phases = file.header.names
    spans: list[Span] = []
    is_step, since = False, 0
    for entry in file.numbers:
        kind, value = entry & _KIND, entry >> ENTRY_BITS
        if kind == Entry.BEGAN:
            since = value
        elif kind == Entry.STEP:
            if spans:
                yield Step(tuple(spans), value if is_step else None, is_step)
            spans, is_step = [], False
        elif kind == Entry.AWAITED:
            spans = list(_divided(spans, value))
        elif kind < len(phases):
            phase, span_began = phases[kind], since
            since = value
            if phase == "rest":
                continue
            if spans and (phase == "input" or phase in _APART or not is_step):
                yield Step(tuple(spans), None, is_step)
                spans = []
            is_step = phase == "input" or (is_step and bool(spans))
            spans.append(Span(phase, span_began, value))
    if spans:
        yield Step(tuple(spans), None, is_step)


def _divided(spans: Sequence[Span], awaited: int) -> Iterator[Span]:
    """What a step without a first message has called input, all its time."""
    for span in spans:
        if span.phase != "input":
            yield span
        elif awaited < 0:
            yield span._replace(phase="whole")
        else:
            came = min(span.began + awaited, span.ended)
            yield Span("input", span.began, came)
            yield Span("compute", came, span.ended)


def blocks_of(file: StepFile) -> Iterator[Block]:
    """The rows of a file of blocks."""
    for row in file.rows():
        first, last, began, ended = row[: len(BLOCK)]
        yield Block(first, last, began, ended, dict(zip(file.header.names, row[len(BLOCK) :], strict=True)))


def began_of(file: StepFile) -> int:
    """When the first phase of a file began that is in it."""
    return next((entry >> ENTRY_BITS for entry in file.numbers[:1]), file.header.monotonic_ns)


def ended_of(file: StepFile) -> int:
    """When its last phase ended."""
    ends = (entry >> ENTRY_BITS for entry in reversed(file.numbers) if entry & _KIND < len(file.header.names))
    return next(ends, file.header.monotonic_ns)


def until(blocks: Sequence[Block], time: int) -> list[Block]:
    """The blocks before `time`; the last one ends there."""
    return [replace(block, ended=min(block.ended, time)) for block in blocks if block.began < time]
