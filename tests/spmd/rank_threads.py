"""Steps as one worker runs them, and divided over ranks that are threads of this process."""

import concurrent.futures
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tests.strategy.thread_worlds import on_each_rank

from paceline.spmd.partition import Partitioner
from paceline.strategy.step_messages import StepMessages

LIMIT_SECONDS = 120


class NotedMessages(StepMessages):
    """The messages of one rank, which also notes what is built."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy.group.rank, strategy.extended.collectives)
        self.sent: list[str] = []

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `Messages.sum`."""
        self.sent.append("sum")
        return super().sum(addends)

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `Messages.gather`."""
        self.sent.append("gather")
        return super().gather(parts)

    def called(self, op: Any, inputs: Sequence[Any]) -> list[Any]:
        """See `Messages.called`."""
        self.sent.append("call")
        return super().called(op, inputs)


@dataclass(frozen=True)
class Step:
    """A function of batches, and what it keeps from one to the next."""

    function: Callable[..., Any]
    variables: Callable[[], Sequence[Any]] = list


@dataclass(frozen=True)
class Outcome:
    """What some steps gave: the last outputs, and the variables afterwards."""

    outputs: list[np.ndarray]
    variables: list[np.ndarray]


def _outcome(outputs: Sequence[Any], step: Step) -> Outcome:
    return Outcome([output.numpy() for output in outputs], [np.array(v.numpy()) for v in step.variables()])


def traced(step: Step, batch: Sequence[np.ndarray], *, for_one_length: bool = False) -> Any:
    """The step, traced for batches like this one, of any length or of this one's."""
    specs = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in batch]
    if for_one_length:
        specs = [tf.TensorSpec(array.shape, array.dtype) for array in batch]
    return tf.function(step.function, autograph=False).get_concrete_function(*specs)


def by_one_worker(
    make: Callable[[], Step], batch: Sequence[np.ndarray], num_steps: int = 2, *, for_one_length: bool = False
) -> Outcome:
    """The step as TensorFlow runs it, on whole batches."""
    step = make()
    function = traced(step, batch, for_one_length=for_one_length)
    for _ in range(num_steps):
        outputs = function(*map(tf.constant, batch))
    return _outcome(tf.nest.flatten(outputs), step)


def by_ranks(
    make: Callable[[], Step],
    batch: Sequence[np.ndarray],
    counts: Sequence[int],
    num_steps: int = 2,
    *,
    for_one_length: bool = False,
) -> tuple[list[Outcome], list[str]]:
    """The divided step on each rank, and the messages of a step.

    Args:
        make: Makes the step, alike each time.
        batch: The whole batch.
        counts: How many of its rows each rank has.
        num_steps: How many times the step runs.
        for_one_length: Whether it is traced for batches of this length only.
    """
    num_rows = sum(counts) if for_one_length else None
    messages = on_each_rank(len(counts), NotedMessages)
    # One after the other: seeds and names of Keras are those of the process.
    steps = [make() for _ in counts]
    divided = [
        Partitioner(one)
        .divided(traced(step, batch, for_one_length=for_one_length), [True] * len(batch), num_rows)
        .get_concrete_function()
        for one, step in zip(messages, steps, strict=True)
    ]

    def run(rank: int) -> Outcome:
        first = sum(counts[:rank])
        own = [tf.constant(array[first : first + counts[rank]]) for array in batch]
        for _ in range(num_steps):
            outputs = divided[rank](tf.constant(sum(counts), tf.int64), tf.constant(first, tf.int64), *own)
        return _outcome(outputs, steps[rank])

    with concurrent.futures.ThreadPoolExecutor(len(counts)) as threads:
        started = [threads.submit(run, rank) for rank in range(len(counts))]
        return [one.result(LIMIT_SECONDS) for one in started], messages[0].sent


def assert_as_one_worker(
    make: Callable[[], Step],
    batch: Sequence[np.ndarray],
    counts: Sequence[int],
    limit: float = 1e-9,
    *,
    for_one_length: bool = False,
) -> list[str]:
    """The ranks have the outputs and variables of one worker; returns the messages of a step."""
    expected = by_one_worker(make, batch, for_one_length=for_one_length)
    outcomes, sent = by_ranks(make, batch, counts, for_one_length=for_one_length)
    for outcome in outcomes:
        for mine, ones in ((outcome.outputs, expected.outputs), (outcome.variables, expected.variables)):
            for array, other in zip(mine, ones, strict=True):
                if other.dtype.kind in "fc":
                    np.testing.assert_allclose(array, other, rtol=limit, atol=limit)
                else:
                    np.testing.assert_array_equal(array, other)
    return sent
