"""The sink that passes a worker's events on to its agent, or to what watches a worker that was started by hand.

Steps are often short. Of those, one is sent every 50 ms: often enough to notice a hang. Before anything else is said,
the last step is, so that the exact step of a failure is known.
"""

import threading
import time
from collections.abc import Callable

from paceline.events.worker_events import BatchDone, Event, FromWorker, StepDone, TraceBegan

_INTERVAL_SECONDS = 0.05


class AgentSink:
    """Sends events, not every step.

    Args:
        send: Sends one to the agent.
        clock: Seconds.
    """

    def __init__(self, send: Callable[[FromWorker], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._sent_at = float("-inf")
        self._unsent: StepDone | BatchDone | None = None
        self._is_tracing = False
        self._lock = threading.RLock()  # the thread that writes snapshots emits, too; a signal's handler may

    def __call__(self, event: Event) -> None:
        """Sends the event, at once or with the next one."""
        with self._lock:
            self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, StepDone | BatchDone):
            now = self._clock()
            self._unsent = event
            if self._is_tracing or now - self._sent_at >= _INTERVAL_SECONDS:
                self._is_tracing = False
                self._sent_at = now
                self._send_step()
        elif isinstance(event, TraceBegan):
            if not self._is_tracing:  # the step of training is traced twice: its variables are made in the first
                self._is_tracing = True
                self._send_step()
                self._send(event)
        elif isinstance(event, FromWorker):
            self._send_step()
            self._send(event)

    def _send_step(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            self._send(unsent)
