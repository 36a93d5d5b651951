"""What the items of a `PyDataset` or a generator cost, and what would make them faster: measured, not guessed.

Items are made here as Keras makes them, one after the other, or by two threads, as with `workers=2`. In `fit` the same
is read by Keras itself. A generator is read once, for a while: what has been read of it is gone.
"""

import copy
import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data.timing.measuring import WORTH_A_LINE, Speed, Waiting, gain
from paceline.errors import ConfigurationError
from paceline.plan.data_profile import MOSTLY, Advice, DataProfile, ItemCost, StageCost

_FEWEST_ITEMS = 3
_LOOKED_AT = 2
"""Items that Keras takes before it begins."""
_MOST_HELD = 8
_LARGEST_HELD = 1 << 28
"""Bytes."""
_WAITING_CALLS = 8
"""At a time, of items that wait."""


def is_py_dataset(data: Any) -> bool:
    """Whether `data` is a `keras.utils.PyDataset`, known by the name of its class: Keras is not imported here."""
    return any(one.__name__ == "PyDataset" and one.__module__.split(".")[0] == "keras" for one in type(data).__mro__)


def profile_of_items(
    source: Any, speed_in_fit: Speed | None, seconds: float, progress: Callable[[str], None]
) -> DataProfile:
    """See `profiling.profile_for`.

    Raises:
        ConfigurationError: there are no items, or they are no batches.
    """
    progress("what an item costs")
    is_indexed = is_py_dataset(source)
    made = _made(_items_of(source), seconds)
    items = made.held
    rows = {len(leaf) for leaf in tf.nest.flatten(items[0]) if np.ndim(leaf)}
    if not rows:
        raise ConfigurationError("The items have no rows: each must be a batch. [not-batched]")
    speed, advice, numbers = _items_per_second(seconds), [], _numbers_to_try(source, made)
    for number in numbers:
        said, changed = f"workers={number} in the PyDataset", _with_workers(source, number)
        progress(said)
        if (faster := gain(speed, source, changed)) >= WORTH_A_LINE:
            if speed_in_fit:
                progress(f"{said}, in fit")
            in_fit = speed_in_fit and gain(speed_in_fit, copy.copy(source), changed)
            advice.append(Advice(said, faster, in_fit))
    share_of_step = None
    if speed_in_fit is not None:
        progress("how long a step waits for items")
        share_of_step = _share_of_step(source, items, speed_in_fit)
    num_rows = max(rows)
    with_workers = is_indexed and (source.workers > 1 or source.use_multiprocessing)
    are_shared_out = with_workers and not made.draws
    stage = StageCost(
        _name_of(source),
        made.seconds / num_rows,
        1.0,
        made.waits,
        one_at_a_time=not with_workers,
        on_own_rows=is_indexed and are_shared_out,
        on_one_rank=is_indexed and not are_shared_out,
        in_python=True,
    )
    size = sum(np.asarray(leaf).nbytes for leaf in tf.nest.flatten(items[0]))
    notes = tuple(_notes(source, made, is_indexed=is_indexed))
    return DataProfile(
        (speed(source) if with_workers else 1 / made.seconds) * num_rows,
        (stage,),
        tuple(sorted(advice, key=lambda one: -one.gain)),
        None,
        0.0,
        "",
        ItemCost(made.seconds, num_rows, size, share_of_step, len(numbers), notes),
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """Items that one thread has made."""

    held: list[Any]
    """Some of them."""
    number: int
    seconds: float
    """Of one."""
    waits: float
    draws: bool
    """Whether they have drawn from a random generator of the process."""


def _items_of(source: Any) -> Iterator[Any]:
    if not is_py_dataset(source):
        return iter(source)
    return map(source.__getitem__, _indices_of(source))


def _indices_of(source: Any) -> Iterator[int]:
    return itertools.count() if source.num_batches is None else itertools.cycle(range(source.num_batches))


def _made(items: Iterator[Any], seconds: float) -> _Made:
    """The first one is left out: files are opened for it."""
    if (first := next(items, None)) is None:
        raise ConfigurationError("The data have no item. [data-profile]")
    held, size, number = [first], 0, 0
    state, begun, waiting = _state_of_generators(), time.perf_counter(), Waiting()
    elapsed = 0.0
    for item in items:
        number, elapsed = number + 1, time.perf_counter() - begun
        if len(held) < _MOST_HELD and size < _LARGEST_HELD:
            size += sum(np.asarray(leaf).nbytes for leaf in tf.nest.flatten(item))
            held.append(item)
        if elapsed >= seconds and number >= _FEWEST_ITEMS:
            break
    if not number:
        raise ConfigurationError("The data have one item only: too few to measure. [data-profile]")
    return _Made(held, number + 1, elapsed / number, waiting.share(), _state_of_generators() != state)


def _state_of_generators() -> tuple[Any, ...]:
    _, keys, position, *others = np.random.get_state()
    return random.getstate(), np.asarray(keys).tobytes(), position, *others


def _numbers_to_try(source: Any, made: _Made) -> list[int]:
    """Of threads. Processes are not tried: one that is forked while TensorFlow's threads run may hang."""
    if not is_py_dataset(source) or source.use_multiprocessing:
        return []
    numbers = [2, _WAITING_CALLS] if made.waits >= MOSTLY else [2]
    return [number for number in numbers if number > source.workers]


def _with_workers(source: Any, number: int) -> Any:
    again = copy.copy(source)
    again.workers = number
    return again


def _items_per_second(seconds: float) -> Speed:
    def speed(source: Any) -> float:
        number, begun = 0, time.perf_counter()
        indices = _indices_of(source)
        with ThreadPoolExecutor(max(1, source.workers)) as threads:
            first = itertools.islice(indices, max(1, source.workers))
            ahead = deque(threads.submit(source.__getitem__, index) for index in first)
            while time.perf_counter() - begun < seconds or number < _FEWEST_ITEMS:
                ahead.popleft().result()
                number += 1
                ahead.append(threads.submit(source.__getitem__, next(indices)))
            elapsed = time.perf_counter() - begun
            threads.shutdown(cancel_futures=True)
        return number / elapsed

    return speed


def _share_of_step(source: Any, held: list[Any], speed_in_fit: Speed) -> float | None:
    has_ended = False

    def from_memory() -> Iterator[Any]:
        nonlocal has_ended
        has_ended = True
        yield from itertools.cycle(held)

    def as_given() -> Iterator[Any]:  # of which Keras takes generators only; the script's is not closed behind it
        yield from itertools.chain(held[:_LOOKED_AT], source, from_memory())

    slow = speed_in_fit(copy.copy(source) if is_py_dataset(source) else as_given())
    if has_ended:
        return None
    return max(0.0, 1 - slow / speed_in_fit(from_memory()))


def _name_of(source: Any) -> str:
    if is_py_dataset(source):
        return f"PyDataset {type(source).__name__}"
    return f"generator {getattr(source, '__name__', type(source).__name__)}"


def _notes(source: Any, made: _Made, *, is_indexed: bool) -> Iterator[str]:
    computes = made.waits < MOSTLY
    if not is_indexed:
        yield (
            f"At least {made.number} items have been read of the generator, and are gone. A generator makes one item "
            "at a time; items of a keras.utils.PyDataset with `workers=2` are made at the same time (not measured)."
        )
        if computes:
            yield (
                "Under `paceline run` each rank reads the generator; with paceline.data.once_per_host(generator) one "
                "rank of each host does, and leaves the others' cores to training (not measured)."
            )
        return
    if made.draws:
        yield (
            "Items draw from the random generators of Python or NumPy, so one rank of each host makes all of them: "
            "with a generator for each item, np.random.default_rng((seed, epoch, index)), ranks would share them out."
        )
    elif source.workers > 1 or source.use_multiprocessing:
        yield "Under `paceline run` each rank of a host makes every n-th item."
    else:
        yield (
            "Under `paceline run` one rank of each host makes all items, in the time that one process takes; with "
            "`workers=2` each makes every n-th, if the order of the calls does not count."
        )
    if computes and not source.use_multiprocessing:
        yield (
            "Several ranks with `workers=2` make items at the same time, and so do processes "
            "(use_multiprocessing=True); neither was measured."
        )
