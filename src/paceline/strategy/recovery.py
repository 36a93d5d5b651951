"""Connects the chief again with workers that were lost and have come back; the others' steps go on meanwhile.

    worker's thread    a step fails, its process is lost ─► waits ···································► goes on
    recovery's thread                          asks who answers ── one of the lost does ─► connects ──┘

TensorFlow's own handler connects with all processes or none: it waits until every worker is there, so that a worker
that stays dead keeps all others from coming back. This one leaves those out that do not answer; each of them is
connected with again when it does.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import tensorflow as tf

from paceline.cluster.spec import WORKER, Address
from paceline.comm.world import current_world
from paceline.strategy import compat
from paceline.strategy.answering import faults_of

_LOGGER = logging.getLogger("paceline")

_PAUSE_SECONDS = 0.1
"""Between two questions to workers that do not answer. One that was killed and comes back takes seconds."""

_LOOK_SECONDS = 2.0
"""How often who waits for a worker looks whether that is in vain."""

_CONNECT_SECONDS = 60.0
"""After that long, connecting is given up where no other worker is left that trains meanwhile."""


def recover_workers(strategy: Any) -> None:
    """From now on lost workers of a `ParameterServerStrategy` are connected again one by one."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    compat.set_failure_handler(coordinator, WorkerRecovery(coordinator))


class WorkerRecovery:
    """What TensorFlow's threads, one for each worker, call around everything that they do on their workers.

    Args:
        coordinator: The `ClusterCoordinator` of these threads.
    """

    def __init__(self, coordinator: Any) -> None:
        self._is_passing, self._is_loss = compat.failures_of(coordinator)
        self._server_def = compat.get_server_def()
        [tasks] = [job.tasks for job in self._server_def.cluster.job if job.name == WORKER]
        self._addresses = {worker: _address(text) for worker, text in dict(tasks).items()}
        self._changed = threading.Condition()
        self._lost: set[int] = set()
        self._fault: BaseException | None = None
        """Why nobody will be connected again: a parameter server is lost."""
        self._connecting_since: float | None = None
        self._is_over = False
        threading.Thread(target=self._connect_lost, name="paceline recovers workers", daemon=True).start()

    def stop(self) -> None:
        """Ends this object's thread. TensorFlow calls it when the coordinator is freed."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    @contextlib.contextmanager
    def wait_on_failure(
        self,
        on_failure_fn: Callable[[BaseException], None] | None = None,
        on_transient_failure_fn: Callable[[], None] | None = None,
        on_recovery_fn: Callable[[], None] | None = None,
        worker_device_name: str = "",
    ) -> Iterator[None]:
        """In a worker's thread: if the block fails because the worker is lost, waits until it is connected again.

        Name and arguments are TensorFlow's.

        Args:
            on_failure_fn: Called at a loss.
            on_transient_failure_fn: Called in place of all else where the network has failed, and nobody is lost.
            on_recovery_fn: Called when the worker is back; its resources are made again.
            worker_device_name: Of the worker.
        """
        try:
            yield
        except compat.FAILURES_ON_WORKERS as fault:
            if self._is_passing(fault):
                if on_transient_failure_fn is not None:
                    on_transient_failure_fn()
                return
            if not self._is_loss(fault):
                raise
            if on_failure_fn is not None:
                on_failure_fn(fault)
            self._await(tf.DeviceSpec.from_string(worker_device_name).task, fault)
            if on_recovery_fn is not None:
                with self.wait_on_failure(None, on_transient_failure_fn, on_recovery_fn, worker_device_name):
                    on_recovery_fn()

    def _await(self, worker: int, fault: BaseException) -> None:
        """Blocks until `worker`, which is lost, is connected again."""
        if not current_world().launched:  # else the launcher says so, and starts the worker again
            _LOGGER.warning(
                "worker %d (%s) is lost, and the others go on. Start it again, and it takes steps again. [worker-lost]",
                worker,
                self._addresses[worker],
            )
        with self._changed:
            self._lost.add(worker)
            self._changed.notify_all()
            while worker in self._lost:
                if self._is_over or self._is_stuck():
                    raise fault
                if self._fault is not None:
                    raise self._fault
                self._changed.wait(_LOOK_SECONDS)
        _LOGGER.info("worker %d takes steps again", worker)

    def _is_stuck(self) -> bool:
        """Whether TensorFlow waits for a worker that died while it was being connected, and no other one trains."""
        since = self._connecting_since
        waits_long = since is not None and time.monotonic() - since > _CONNECT_SECONDS
        return waits_long and len(self._lost) == len(self._addresses)

    def _connect_lost(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lost or self._is_over)
                if self._is_over:
                    return
                lost = set(self._lost)
            away = self._silent(lost)
            if away == lost:
                time.sleep(_PAUSE_SECONDS)
            else:
                # Who does not answer stays out, also if nobody has missed it yet: TensorFlow would wait for it.
                away |= self._silent(self._addresses.keys() - lost)
                self._connect(self._addresses.keys() - away)

    def _connect(self, members: Collection[int]) -> None:
        """Has TensorFlow connect with these workers and all other processes."""
        server_def = type(self._server_def)()
        server_def.CopyFrom(self._server_def)
        [tasks] = [job.tasks for job in server_def.cluster.job if job.name == WORKER]
        for absent in self._addresses.keys() - set(members):
            del tasks[absent]
        self._connecting_since = time.monotonic()
        try:
            compat.context().update_server_def(server_def)
        except Exception as fault:
            if not self._is_loss(fault):  # else another worker was lost meanwhile, and this is tried again
                self._give_up(fault)
            return
        finally:
            self._connecting_since = None
        with self._changed:
            self._lost.difference_update(members)
            self._changed.notify_all()

    def _give_up(self, fault: BaseException) -> None:
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def _silent(self, workers: Iterable[int]) -> set[int]:
        return set(faults_of({worker: self._addresses[worker] for worker in workers}))


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))
