"""Dispatches executions to the workers, and takes what they return, on the chief's main thread.

    main thread  dispatch ─► waits until admitted ─► TensorFlow's queue      collect, drain ─► results
    worker's thread                                      └─► run ─► ended ───────▲

TensorFlow's coordinator has one thread for each worker. The thread takes an execution from the queue and runs it on its
worker. If the worker is lost, the thread waits until that is back, and the main thread begins the execution again, for
whoever is free.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.cluster.spec import WORKER, Task
from paceline.comm.world import current_world
from paceline.events.bus import bus
from paceline.events.worker_events import StepsAwaited, WorkerStuck
from paceline.parameter_server.staleness_bound import Begun, StalenessBound
from paceline.parameter_server.step_faults import told_in_short
from paceline.parameter_server.step_watch import StepWatch
from paceline.strategy import coordination

_LOGGER = logging.getLogger("paceline")

_LOOK_SECONDS = 1.0
"""Waits end when an execution ends; between them Python looks for signals, and the chief for workers that hang."""

CANCEL_SECONDS = 5.0
"""How long steps are waited for that are broken off; a worker that hangs breaks nothing off."""


class Execution:
    """One function call that a worker makes; the coordinator's threads call its methods (`coordination.Scheduled`).

    Args:
        dispatcher: Hears of the end.
        function: What is called, a `TracedExecution`.
        call: Makes the call on the current worker and returns its results as NumPy arrays.
        begun: What it counts.
        then: Takes the results, on the main thread.
    """

    def __init__(
        self,
        dispatcher: "StepDispatcher",
        function: Any,
        call: Callable[[], Any],
        begun: Begun,
        then: Callable[[Any], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._function = function
        self._call = call
        self.begun = begun
        self.then = then
        self.results: Any = None
        self.fault: BaseException | None = None
        self.is_cancelled = False
        self.worker: int | None = None
        """Which has taken it; None: none yet."""
        self._is_lost = False

    def run(self) -> None:
        """On a worker's thread. What the loss of a process raises is raised again: the coordinator handles it."""
        if self._is_lost:  # the coordinator has put it back into its queue
            return
        self.worker = coordination.current_worker_index()
        try:
            if not self.is_cancelled:
                with self._dispatcher.watching(self.worker, self._function):
                    self.results = self._call()
        except Exception as fault:
            if coordination.is_loss_of_process(fault) and not self.is_cancelled:
                self._is_lost = True
                self._dispatcher.lose(self)
                raise
            self.fault = told_in_short(fault, self.worker)
        self._dispatcher.hear(self)

    def fail(self, fault: BaseException) -> None:
        """The coordinator has given up."""
        self.fault = fault
        self._dispatcher.hear(self)

    def again(self, begun: Begun) -> "Execution":
        """The same, for another worker."""
        return Execution(self._dispatcher, self._function, self._call, begun, self.then)


class StepDispatcher:
    """Of one model.

    Args:
        strategy: Its `ParameterServerStrategy`.
        staleness_bound: When executions may begin.
    """

    def __init__(self, strategy: Any, staleness_bound: StalenessBound) -> None:
        self._queue = coordination.queue_of(strategy)
        self._staleness_bound = staleness_bound
        self._changed = threading.Condition()
        self._running: dict[int, Execution] = {}
        """By identity, in the order of beginnings."""
        self._ended: list[Execution] = []
        self._lost: list[Execution] = []
        """Whose workers were lost; they are the next to begin."""
        self._num_ended = 0
        self.num_untaken = 0
        """Steps that were dispatched, and whose results are not taken yet."""
        self._num_redone = 0
        self._cancellation = coordination.CancellationManager()
        self._watch = StepWatch(read_variables(JobOptions, os.environ, "hang_timeout_seconds").hang_timeout_seconds)

    def dispatch(self, function: Any, call: Callable[[Any], Any], then: Callable[[Any], None]) -> None:
        """Waits until the execution may begin, and begins it.

        Args:
            function: What is called, a `TracedExecution`.
            call: Makes the call on a worker and returns its results; takes what may break the call off
                (`coordination.call_on_worker`).
            then: Called with its results in `collect` or `drain`.

        Raises:
            Exception: what a worker's step has raised. No execution is running then.
        """
        cancellation, num_steps = self._cancellation, function.num_steps
        clock = current_world().clock
        clock.others_begin()
        self._wait_until(lambda: not self._lost and self._admits(num_steps))
        clock.others_ended()
        self.num_untaken += num_steps
        begun = Begun(num_steps, self._num_ended)
        self._begin(Execution(self, function, lambda: call(cancellation), begun, then))

    def collect(self) -> None:
        """Takes the results of the executions that have ended. Does not wait.

        Raises:
            Exception: what a worker's step has raised. No execution is running then.
        """
        with self._changed:
            ended, self._ended = self._ended, []
        for execution in ended:
            if execution.fault is not None:
                self.cancel()
                raise execution.fault
            self.num_untaken -= execution.begun.num_steps
            execution.then(execution.results)

    def drain(self) -> None:
        """Waits until no execution is running, and takes the results.

        Raises:
            Exception: what a worker's step has raised.
        """
        self._wait_until(lambda: not self._running and not self._lost)

    def wait_for_one(self) -> None:
        """Waits until an execution has ended whose results are not taken yet, or none is running."""
        self._wait_until(lambda: bool(self._ended) or not (self._running or self._lost))

    def take_num_redone(self) -> int:
        """How many steps were begun again since this was asked last."""
        num_redone, self._num_redone = self._num_redone, 0
        return num_redone

    def cancel(self) -> None:
        """Gives up all executions, and their results. Returns when no worker runs one, or after `CANCEL_SECONDS`."""
        with self._changed:
            for execution in self._running.values():
                execution.is_cancelled = True
        self._cancellation.start_cancel()
        deadline = time.monotonic() + CANCEL_SECONDS
        try:
            while self._running and time.monotonic() < deadline:
                self._tell_stuck()
                with self._changed:
                    self._changed.wait_for(lambda: not self._running, _LOOK_SECONDS)
        finally:
            self._forget()

    def _forget(self) -> None:
        """What is still running is not waited for any more."""
        with self._changed:
            stuck = sorted({one.worker for one in self._running.values() if one.worker is not None})
            self._running, self._ended, self._lost = {}, [], []
        self.num_untaken = 0
        self._cancellation = coordination.CancellationManager()
        for worker in stuck:
            _LOGGER.warning(
                "worker %d has not broken off its step within %g s, so that this step may still update the weights. "
                "[hang]",
                worker,
                CANCEL_SECONDS,
            )

    @contextlib.contextmanager
    def watching(self, worker: int, function: Any) -> Iterator[None]:
        """On a worker's thread, around its call of `function`: so a call that does not end is noticed."""
        if self._watch.limit_seconds is None:
            yield
            return
        with self._changed:
            self._watch.begin(worker, function, time.monotonic())
        try:
            yield
        except BaseException:
            with self._changed:
                self._watch.lose(worker)
            raise
        with self._changed:
            self._watch.end(worker, function)

    def hear(self, execution: Execution) -> None:
        """On a worker's thread: `execution` has ended."""
        with self._changed:
            if self._stop_running(execution):
                self._ended.append(execution)
            elif execution in self._lost:  # the coordinator has given up: a parameter server is lost
                self._lost.remove(execution)
                self._ended.append(execution)
                self._changed.notify_all()

    def lose(self, execution: Execution) -> None:
        """On a worker's thread: the worker was lost. What it had updated until then stays updated."""
        with self._changed:
            if self._stop_running(execution):
                self._lost.append(execution)

    def _stop_running(self, execution: Execution) -> bool:
        """False: it had ended before."""
        was_running = self._running.pop(id(execution), None) is not None
        if was_running:
            self._num_ended += execution.begun.num_steps
            self._changed.notify_all()
        return was_running

    def _begin(self, execution: Execution) -> None:
        with self._changed:
            self._queue.put(coordination.Scheduled(execution))
            self._running[id(execution)] = execution

    def _begin_lost(self) -> None:
        """Begins those again that may begin now."""
        while True:
            with self._changed:
                if not self._can_begin_lost():
                    return
                lost = self._lost.pop(0)
            self._num_redone += lost.begun.num_steps
            self._begin(lost.again(Begun(lost.begun.num_steps, self._num_ended)))

    def _can_begin_lost(self) -> bool:
        return bool(self._lost) and self._admits(self._lost[0].begun.num_steps)

    def _admits(self, num_steps: int) -> bool:
        running = [execution.begun for execution in self._running.values()]
        return self._staleness_bound.admits(num_steps, running, self._num_ended)

    def _wait_until(self, is_there: Callable[[], bool]) -> None:
        """Takes results before, in between and after; each end may have changed what is waited for."""
        self.collect()
        while True:
            self._begin_lost()
            self._tell_stuck()
            with self._changed:
                has_changed = self._changed.wait_for(lambda: self._can_begin_lost() or is_there(), _LOOK_SECONDS)
                if is_there():
                    break
            if not has_changed:
                bus.emit(StepsAwaited(current_world().rank))
            self.collect()
        self.collect()

    def _tell_stuck(self) -> None:
        """Names workers that hang: to the launcher, which ends them, or where there is none to the user."""
        if self._watch.limit_seconds is None:
            return
        with self._changed:
            stuck = self._watch.overdue(time.monotonic())
        for worker in stuck:
            world, seconds = current_world(), self._watch.limit_seconds
            bus.emit(WorkerStuck(world.rank, str(Task(WORKER, worker)), seconds))
            if not world.launched:
                _LOGGER.warning(
                    "worker %d has made no step for %g s (PACELINE_HANG_TIMEOUT), and the others go on. If the process "
                    "hangs, end it with `kill -9`, and start it again. [hang]",
                    worker,
                    seconds,
                )


def as_tensors(batch: Any) -> list[Any]:
    """The leaves of a batch as tensors, also of ragged and sparse ones, and without those that are None."""
    leaves = tf.nest.flatten(batch, expand_composites=True)
    return [leaf if tf.is_tensor(leaf) else tf.convert_to_tensor(leaf) for leaf in leaves if leaf is not None]
