"""The bus of a process: whoever sees something happen emits an event, and every sink is called with it.

worker   fit, snapshots, chaos ─ emit ─► BUS ─► the agent (``comm/agent_sink.py``), the user's sinks, faults of --chaos
                                                     │
head     generations, hosts ──── emit ─► Bus ◄───────┘ over the worker's socket
                                          └─► screen, logs, goodput, --events FILE
"""

import importlib
import logging
from collections.abc import Callable

from paceline.events.worker_events import Event

Sink = Callable[[Event], None]
"""Called with each event, in the thread that emits it, before that goes on."""


class Bus:
    """Passes events on to sinks, in the order in which they came. An exception of a sink is raised to the emitter.

    >>> seen = []
    >>> own_bus = Bus()
    >>> end = own_bus.subscribe(seen.append)
    >>> own_bus.emit("an event")
    >>> end()
    >>> own_bus.emit("another one")
    >>> seen
    ['an event']
    """

    def __init__(self) -> None:
        self._sinks: tuple[Sink, ...] = ()

    def emit(self, event: Event) -> None:
        """Calls every sink."""
        for sink in self._sinks:
            sink(event)

    def subscribe(self, sink: Sink) -> Callable[[], None]:
        """From now on `sink` is called with each event; until what is returned is called."""
        self._sinks = (*self._sinks, sink)

        def end() -> None:
            left = list(self._sinks)
            if sink in left:
                left.remove(sink)
            self._sinks = tuple(left)

        return end


bus = Bus()
"""This process's, where it is a worker. The head of a job has one for each job."""


_LOGGER = logging.getLogger("paceline")


def subscribe(sink: Sink) -> Callable[[], None]:
    """From now on calls `sink` with each event of this process; call what is returned to end that.

        def show(event):
            if isinstance(event, paceline.events.EpochEnded):
                print(event.rank, event.epoch, event.logs)

        paceline.events.subscribe(show)     # before `fit`
        model.fit(dataset, epochs=3)

    In a worker these are the events that workers emit (``docs/events.md``), of this rank, each step among them. The
    sink runs in the thread that emits, and `fit` waits for it: let it be quick, and call no collective. If it raises an
    exception, that is logged, the sink is called no more, and training continues.

    Works with `paceline run` and without. Each rank that runs the call has a sink of its own.
    """
    # By name: `fit` lies above this package, which the launcher uses, too. Without the seam `fit` emits nothing.
    importlib.import_module("paceline.seams.install").install_with_keras()
    return bus.subscribe(guarded(sink))


def guarded(sink: Sink) -> Sink:
    """A user's `sink`, whose first exception is logged and ends it: what observes a training must not stop it."""
    has_failed = False

    def call(event: Event) -> None:
        nonlocal has_failed
        if has_failed:
            return
        try:
            sink(event)
        except Exception:
            has_failed = True
            _LOGGER.exception("a sink of events failed and gets no more; training continues [event-sink]")

    return call
