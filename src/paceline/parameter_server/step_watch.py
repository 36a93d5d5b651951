"""Notices workers that hang: one is at an execution for too long. Pure: no clock, no threads.

    worker 0   execution ─► execution ─► execution ─► execution …
    worker 1   execution ─► execution ·····················────►  is named, once; the launcher ends the process
                                     └── limit, and a moment ──┘

A process that the kernel holds stopped is noticed by its agent, after the limit alone. The moment lets that come first:
while a parameter server is stopped, no worker ends its step.
"""

from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

AGENTS_SECONDS = 1.0
"""How much sooner the agents tell of processes that are stopped."""

FIRST_SECONDS = 60.0
"""How much longer a worker's first execution of a function may take: the worker compiles the function first."""


@dataclass(frozen=True)
class _Taken:
    function: Any
    due_at: float


class StepWatch:
    """Of the executions of one model; by the index of the worker.

    >>> class Function: ...
    >>> watch, step = StepWatch(limit_seconds=5), Function()
    >>> watch.begin(1, step, now=0.0), watch.overdue(now=60.0), watch.end(1, step)
    (None, (), None)
    >>> watch.begin(1, step, now=60.0), watch.overdue(now=65.0), watch.overdue(now=66.0), watch.overdue(now=67.0)
    (None, (), (1,), ())

    Args:
        limit_seconds: How long an execution may take; None: for ever.
    """

    def __init__(self, limit_seconds: float | None) -> None:
        self.limit_seconds = limit_seconds
        self._taken: dict[int, _Taken] = {}
        self._known: dict[int, WeakSet[Any]] = {}
        """The functions of which each worker has made an execution."""

    def begin(self, worker: int, function: Any, now: float) -> None:
        """`worker` begins an execution of `function`."""
        if self.limit_seconds is not None:
            more_seconds = 0.0 if function in self._known.get(worker, ()) else FIRST_SECONDS
            self._taken[worker] = _Taken(function, now + self.limit_seconds + AGENTS_SECONDS + more_seconds)

    def end(self, worker: int, function: Any) -> None:
        """`worker` has made the execution."""
        self._taken.pop(worker, None)
        self._known.setdefault(worker, WeakSet()).add(function)

    def lose(self, worker: int) -> None:
        """`worker` is lost; what takes its place knows no function."""
        self._taken.pop(worker, None)
        self._known.pop(worker, None)

    def overdue(self, now: float) -> tuple[int, ...]:
        """The workers that are at an execution for too long; each is named once for each execution."""
        late = tuple(worker for worker, taken in self._taken.items() if now >= taken.due_at)
        for worker in late:
            del self._taken[worker]
        return late
