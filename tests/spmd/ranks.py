"""Ranks as threads of one process, and steps that are run by one worker and by them."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.spmd.partition import Partitioner

LIMIT_SECONDS = 120
"""After so long the ranks do not meet any more: a rank has failed, or they send different messages."""

# A message keeps a thread of TensorFlow waiting until all ranks have come.
tf.config.threading.set_inter_op_parallelism_threads(16)


class _Meeting:
    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=LIMIT_SECONDS)
        self._brought: list[Any] = [None] * size

    def exchange(self, rank: int, brought: Any) -> list[Any]:
        self._brought[rank] = brought
        self._barrier.wait()
        everything = list(self._brought)
        self._barrier.wait()
        return everything

    def abort(self) -> None:
        self._barrier.abort()


@dataclass
class ThreadMessages:
    """Messages between threads: an operation of a graph waits until every rank has come to it."""

    meeting: _Meeting
    rank: int
    sent: list[str] = field(default_factory=list)
    """What was built: `sum of 3`, `gather of 1`."""

    def __post_init__(self) -> None:
        self._turn = tf.Variable(0, trainable=False)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.meeting.size

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `Messages`."""
        self.sent.append(f"sum of {len(addends)}")
        sums = self._in_turn(addends, [None] * len(addends))
        for one, addend in zip(sums, addends, strict=True):
            one.set_shape(addend.shape)
        return sums

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `Messages`."""
        self.sent.append(f"gather of {len(parts)}")
        tensors = [tensor for tensor, _ in parts]
        gathered = self._in_turn(tensors, [dim for _, dim in parts])
        for one, tensor in zip(gathered, tensors, strict=True):
            one.set_shape([None] * tensor.shape.rank)
        return gathered

    def _in_turn(self, tensors: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
        """Of each tensor the sum over ranks, or all one after the other along a dimension."""

        def meet(*arrays: np.ndarray) -> list[np.ndarray]:
            of_ranks = zip(*self.meeting.exchange(self.rank, arrays), strict=True)
            return [
                np.asarray(sum(each[1:], each[0]), each[0].dtype) if dim is None else np.concatenate(each, dim)
                for each, dim in zip(of_ranks, dims, strict=True)
            ]

        with tf.control_dependencies([self._turn.assign_add(1, read_value=False)]):
            results = tf.numpy_function(meet, list(tensors), [tensor.dtype for tensor in tensors])
        with tf.control_dependencies(results):
            self._turn.assign_add(1, read_value=False)
        return list(results)


@dataclass(frozen=True)
class Step:
    """A function of batches, and what it keeps from one to the next."""

    function: Callable[..., Any]
    variables: Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class Outcome:
    """What some steps gave: the last outputs, and the variables afterwards."""

    outputs: list[np.ndarray]
    variables: list[np.ndarray]


def _outcome(outputs: Sequence[Any], step: Step) -> Outcome:
    return Outcome([output.numpy() for output in outputs], [np.array(v.numpy()) for v in step.variables()])


def traced(step: Step, batch: Sequence[np.ndarray]) -> Any:
    """The step, traced for batches like this one of any length."""
    specs = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in batch]
    return tf.function(step.function, autograph=False).get_concrete_function(*specs)


def by_one_worker(make: Callable[[], Step], batch: Sequence[np.ndarray], num_steps: int = 2) -> Outcome:
    """The step as TensorFlow runs it, on whole batches."""
    step = make()
    function = traced(step, batch)
    for _ in range(num_steps):
        outputs = function(*map(tf.constant, batch))
    return _outcome(tf.nest.flatten(outputs), step)


def by_ranks(
    make: Callable[[], Step], batch: Sequence[np.ndarray], counts: Sequence[int], num_steps: int = 2
) -> tuple[list[Outcome], list[str]]:
    """The divided step on each rank, and what a rank sends.

    Args:
        make: Makes the step, alike each time.
        batch: The whole batch.
        counts: How many of its rows each rank has.
        num_steps: How many times the step runs.
    """
    meeting = _Meeting(len(counts))
    messages = [ThreadMessages(meeting, rank) for rank in range(len(counts))]
    steps = [make() for _ in counts]
    divided = [
        Partitioner(messages[rank]).divided(traced(steps[rank], batch), [True] * len(batch)).get_concrete_function()
        for rank in range(len(counts))
    ]
    outcomes: dict[int, Outcome] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        first = sum(counts[:rank])
        own = [tf.constant(array[first : first + counts[rank]]) for array in batch]
        try:
            for _ in range(num_steps):
                outputs = divided[rank](tf.constant(sum(counts), tf.int64), tf.constant(first, tf.int64), *own)
            outcomes[rank] = _outcome(outputs, steps[rank])
        except BaseException as error:
            errors.append(error)
            meeting.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [outcomes[rank] for rank in range(len(counts))], messages[0].sent


def assert_as_one_worker(
    make: Callable[[], Step], batch: Sequence[np.ndarray], counts: Sequence[int], limit: float = 1e-9
) -> list[str]:
    """The ranks have the outputs and variables of one worker; returns what a rank sends in a step."""
    expected = by_one_worker(make, batch)
    outcomes, sent = by_ranks(make, batch, counts)
    for outcome in outcomes:
        for mine, one in ((outcome.outputs, expected.outputs), (outcome.variables, expected.variables)):
            for array, other in zip(mine, one, strict=True):
                if other.dtype.kind in "fc":
                    np.testing.assert_allclose(array, other, rtol=limit, atol=limit)
                else:
                    np.testing.assert_array_equal(array, other)
    return sent
