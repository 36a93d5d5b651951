"""Runs the loops of fused updates (`spmd/fusion.py`) in a graph of TensorFlow.

    variables, vectors, numbers ─► one call of Python: compiled loops, into spare arrays ─► assigned, without a copy

TensorFlow lends the memory of what goes into the call and adopts the arrays that come out of it. Python only looks up
addresses: the loops run without its lock, over as many threads as TensorFlow's own operations.
"""

import ctypes
import functools
import logging
import math
import platform
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.spmd.fusion import Update
from paceline.spmd.loop_text import PROCESSORS, is_streamed
from paceline.spmd.loops import ALIGNMENT
from paceline.strategy.loop_compiler import compiled, runner, why_not
from paceline.strategy.python_calls import RegisteredFunction, keep_thread_state
from paceline.strategy.server_threads import num_cores
from paceline.strategy.spare_arrays import SpareArrays

_LOGGER = logging.getLogger("paceline")

_LEAST_PER_THREAD = 65536
"""Entries; fewer are computed before another thread has begun."""

_spare_arrays = SpareArrays()


def fused_updates(*, tells: bool) -> "FusedUpdateCalls | None":
    """Who runs the updates of this process as loops; None: they stay TensorFlow's operations.

    Variables on a GPU stay there, and without an llvmlite that works nothing can be compiled. Ranks are alike: jobs
    whose ranks have other versions of llvmlite do not start (`wire/versions.py`).

    Args:
        tells: Whether a line says, once, what a missing llvmlite costs.
    """
    if tf.config.get_visible_devices("GPU"):
        return None
    if platform.machine() not in PROCESSORS or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None  # whose rounding, or whose count of references, is another one
    reason = why_not()
    if reason is None:
        return FusedUpdateCalls()
    if tells:
        _tell_what_is_missed(reason)
    return None


@functools.cache
def _tell_what_is_missed(reason: str) -> None:
    _LOGGER.info(
        "the weights are updated operation by operation, 2 to 4 times slower (%s): pip install --upgrade llvmlite",
        reason,
    )


class FusedUpdateCalls:
    """`fusion.Updates` by calls of Python.

    Args:
        least_entries: See `fusion.Updates`. With Adam, loops are faster from some 4,000 entries a weight on one core,
            and from some 20,000 on two, where TensorFlow runs two operations at a time (200 weights, AMD EPYC).
    """

    def __init__(self, least_entries: int = 16384) -> None:
        self.least_entries = least_entries

    def build(self, updates: Sequence[Update], inputs: Sequence[Any]) -> None:
        """See `fusion.Updates.build`."""
        handles = [inputs[place] for update in updates for place in update.variables]
        given: dict[int, Any] = {}
        for update in updates:
            given.update((place, inputs[place]) for place in (*update.numbers, *update.vectors))
        with tf.device("/device:CPU:0"):
            # An assignment reads its variable when its other inputs are there: so does the loop.
            with tf.control_dependencies(list(given.values())):
                variables = [
                    tf.raw_ops.ReadVariableOp(resource=inputs[place], dtype=update.loop.dtype)
                    for update in updates
                    for place in (update.variables[number] for number in update.loop.read)
                ]
            call = _Call(updates, {place: index for index, place in enumerate(given)})
            outputs = tf.raw_ops.PyFunc(input=[*given.values(), *variables], token=call.token, Tout=call.output_types)
            written = [handle for handle, is_written in zip(handles, call.are_written, strict=True) if is_written]
            ends = []
            for handle, output, shape in zip(written, outputs, call.output_shapes, strict=True):
                output.set_shape(shape)
                ends.append(tf.raw_ops.AssignVariableOp(resource=handle, value=output))
        tf.group(*ends)


class _Call(RegisteredFunction):
    """All loops of a `FusedUpdates`.

    Args:
        updates: The loops.
        places: For each number and vector, which argument of the call it is.
    """

    def __init__(self, updates: Sequence[Update], places: dict[int, int]) -> None:
        self._jobs: list[_Job] = []
        self._kinds: list[tuple[tuple[int, ...], str]] = []
        self.are_written: list[bool] = []
        """For each variable whether the call has a new value for it."""
        num_arguments = len(places) + sum(len(update.loop.read) for update in updates)
        next_variable = len(places)
        order: list[int] = []
        place_of_table = 0
        for update in updates:
            arguments = [places[place] for place in (*update.numbers, *update.vectors)]
            arguments += range(next_variable, next_variable + len(update.loop.read))
            next_variable += len(update.loop.read)
            written = update.loop.written
            order += [*arguments, *(num_arguments + len(self._kinds) + index for index in range(len(written)))]
            self._kinds += [(update.shape, update.loop.dtype)] * len(written)
            self.are_written += [number in written for number in range(len(update.variables))]
            self._jobs.append(_Job(update, arguments, place_of_table * np.uint64().itemsize))
            place_of_table = len(order)
        self._order = np.array(order)
        """Of all addresses, those of the arguments before those of the results: the table of each loop, one by one."""
        self.output_types = [dtype for _, dtype in self._kinds]
        self.output_shapes = [shape for shape, _ in self._kinds]
        num_entries = sum(job.num_entries for job in self._jobs)
        num_threads = max(1, min(_num_threads(), num_entries // _LEAST_PER_THREAD))
        self._records = [
            np.array([job.record(number, num_threads) for job in self._jobs], np.int64).reshape(-1, 5)
            for number in range(num_threads)
        ]
        """For each thread those that the runner takes, with the place of each table in place of its address."""
        super().__init__(self._run)

    def _run(self, device: str, arguments: Sequence[Any]) -> list[Any]:
        """The new values of the variables that are written."""
        del device
        keep_thread_state()
        results, made = _spare_arrays.take(self._kinds)
        arrays = [np.asarray(argument) for argument in arguments]  # TensorFlow hands numbers over without an address
        for job in self._jobs:
            job.check(arrays)
        addresses = np.array([*map(_address_of, arrays), *made], np.uint64)[self._order]
        records = [one.copy() for one in self._records]
        for one in records:
            one[:, 4] += addresses.ctypes.data
        others: list[Future[None]] = []
        try:
            others += (_threads().submit(runner(), len(one), one.ctypes.data) for one in records[1:])
            runner()(len(records[0]), records[0].ctypes.data)
        finally:
            wait(others)  # they read and write the memory that this function holds
        for other in others:
            other.result()
        return results


class _Job:
    """A compiled loop: which arguments of the call it is given, and how many entries they have.

    Args:
        update: The loop, and what it is given.
        arguments: The arguments of the call that are its numbers, vectors and variables.
        place: Where its table begins among all addresses, in bytes.
    """

    def __init__(self, update: Update, arguments: Sequence[int], place: int) -> None:
        self.num_entries = math.prod(update.shape)
        self._arrays = arguments[len(update.numbers) :]
        self._dtype = np.dtype(update.loop.dtype)
        self._function = compiled(update.loop)
        self._is_streamed = is_streamed(update.loop, self.num_entries)
        self._place = place

    def record(self, number: int, num_threads: int) -> tuple[int, int, int, int, int]:
        """What the runner is given for one thread's share of the entries."""
        share = -(-self.num_entries // (num_threads * ALIGNMENT)) * ALIGNMENT
        begin, end = min(share * number, self.num_entries), min(share * (number + 1), self.num_entries)
        return self._function, begin, end, self._is_streamed, self._place

    def check(self, arrays: Sequence[Any]) -> None:
        """Raises `ValueError` if an array is not as long as the trace has said: a loop would read what lies behind."""
        for index in self._arrays:
            array = arrays[index]
            if array.size != self.num_entries or array.dtype != self._dtype:
                told = f"{array.size} of {array.dtype}"
                raise ValueError(f"an update of {self.num_entries} entries of {self._dtype} was given {told}")


def _address_of(array: Any) -> int:
    """Where an array begins: several times as fast as NumPy's own ways."""
    if not array.size or not array.flags.writeable:
        return int(array.ctypes.data)
    return ctypes.addressof(ctypes.c_char.from_buffer(array))


def _num_threads() -> int:
    return tf.config.threading.get_intra_op_parallelism_threads() or num_cores()


_pool: list[ThreadPoolExecutor] = []
_pool_lock = threading.Lock()


def _threads() -> ThreadPoolExecutor:
    """Threads that wait for loops, made when they are first needed."""
    with _pool_lock:
        if not _pool:
            _pool.append(ThreadPoolExecutor(_num_threads(), thread_name_prefix="paceline-update"))
        return _pool[0]
