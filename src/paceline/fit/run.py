"""Calls of `fit`, `evaluate` and `predict` that are going on, and who observes the outermost `fit`.

    fit                          Run: its model, its epochs
     ├─ evaluate (validation)    Run, within the fit's
     └─ a callback: predict      Run, within the fit's

One thread is in one chain of calls; a `fit` has one observer in the process.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from paceline.comm.world import current_world
from paceline.data.faults import kept_fault_raised

if TYPE_CHECKING:
    from paceline.fit.step_times import StepTimes


class Run:
    """One call.

    Args:
        model: Whose method was called.
        method: `fit`, `evaluate` or `predict`.
        epochs: Of a `fit`: the first one, from 0, and the end of the last.
        parent: The call that this one is made in.
    """

    num_running = 0
    """In all threads of this process."""

    def __init__(self, model: Any, method: str, epochs: tuple[int, int], parent: "Run | None") -> None:
        self.model = model
        self.method = method
        self.epochs = epochs
        self.parent = parent
        self.has_iterator = False
        """Whether it has made its epoch iterator."""
        self.has_shared_values = False
        """Whether all ranks have the chief's values by now."""
        self.step_times: StepTimes | None = None
        """Who says where the time of its steps goes."""
        self.readings: list[Any] = [] if parent is None else parent.readings
        """Those of this call, of calls around it and within it: see `ends`."""

    @staticmethod
    def current() -> "Run | None":
        """The innermost call that this thread is in."""
        return _here.run

    @staticmethod
    def of_fit(model: Any) -> "Run | None":
        """The innermost `fit` of `model` that this thread is in."""
        run = _here.run
        while run is not None and not (run.method == "fit" and run.model is model):
            run = run.parent
        return run

    @staticmethod
    def ends(reading: Any) -> None:
        """`reading` ends with the outermost call that this thread is in: within that, the next reader sees to it."""
        if _here.run is not None:
            _here.run.readings.append(reading)

    @staticmethod
    @contextmanager
    def begun(model: Any, method: str, epochs: tuple[int, int] = (0, 1)) -> Iterator["Run"]:
        """While this lasts, the thread is in such a call.

        Raises:
            Exception: the refusal of a batch while it was read.
        """
        before = _here.run
        run = _here.run = Run(model, method, epochs, before)
        Run.num_running += 1
        is_interrupted = True
        try:
            with kept_fault_raised() if before is None else nullcontext():
                yield run
            is_interrupted = False
        except Exception:  # the script may catch it, and go on with a generator
            is_interrupted = False
            raise
        finally:
            _here.run = before
            Run.num_running -= 1
            for reading in run.readings if before is None else ():
                if is_interrupted:  # from the keyboard: nothing is waited for, a generator may never go on
                    reading.leave()
                else:
                    reading.end()


class _Here(threading.local):
    run: Run | None = None


_here = _Here()


class FitObserver:
    """Is told of what happens in the outermost `fit` of this process, for snapshots and events. Here: does nothing."""

    def follows(self, epochs: Any) -> Any:
        """A new epoch iterator is made; who follows it through its data (`snapshots/data_cursor.py`), if anybody."""
        del epochs

    def hook_begins(self, hook: str, callbacks: Any, logs: Any) -> None:
        """A hook of a list of callbacks is about to be called, in this `fit` or in another call within it."""

    def hook_ended(self, hook: str, callbacks: Any, position: int, logs: Any) -> None:
        """A hook has been called.

        Args:
            hook: Its name.
            callbacks: The list.
            position: The epoch or batch that it was given; 0 for those of a whole call.
            logs: What it was given.
        """

    def logs_of_last_step(self, model: Any, logs: Any) -> Any:
        """What Keras should take for the logs of the last step of `model`."""
        del model
        return logs

    def tracing(self) -> None:
        """A step is about to be traced, which may take long."""

    def traced(self, graph: Any) -> None:
        """A step has been traced in `graph`."""


class _Observed:
    """The process's: a `fit` that a callback starts is a part of the step that it is called in, in any thread."""

    by: FitObserver | None = None


_observed = _Observed()


def observer() -> FitObserver | None:
    """That of the `fit` that is going on; None: none is, or nobody observes it."""
    return _observed.by


@contextmanager
def observed_by(one: FitObserver) -> Iterator[None]:
    """While this lasts, `one` is told of the `fit` that goes on."""
    _observed.by = one
    try:
        yield
    finally:
        _observed.by = None


def telling_of_traces(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A step that tells the observer when it is traced: nobody misses a step that has to be traced first."""

    @functools.wraps(step)
    def told(data: Any) -> Any:
        if tf.executing_eagerly():
            return step(data)
        current_world().clock.tracing()
        by = observer()
        if by is None:
            return step(data)
        by.tracing()
        result = step(data)
        by.traced(tf.compat.v1.get_default_graph())
        return result

    return told
