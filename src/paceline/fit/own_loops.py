"""Training loops of a user's own in a launched job whose script names no strategy: all ranks run the same loop.

    a `tf.function` that trains     is divided over the ranks (`own_functions.py`)
    eager gradients and updates     are computed alike by all ranks, from whole batches; one line says so

Every rank reads the same data with the same seeds, so what is eager comes out alike. It is not taken on trust: data and
gradients are compared over ranks, at the first step and then ever more rarely, and the gradients that an eager
optimizer gets are the chief's, so that weights stay the same to the last bit whatever the ranks' threads round.
"""

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np
import tensorflow as tf

from paceline.comm.group import Group
from paceline.comm.script_lines import lines_of_ranks
from paceline.comm.world import World, current_world
from paceline.data.fingerprint import may_be_same_rows, other_draws, parts_of
from paceline.errors import DesynchronizedError
from paceline.fit.run import Run
from paceline.fit.strategies import drop_in_strategy
from paceline.fit.whole_steps import WholeStep
from paceline.strategy.as_one_worker import is_as_one_worker
from paceline.strategy.base import named_strategies

_LOGGER = logging.getLogger("paceline")

_MOST_STEPS_APART = 1024
_NUM_SAMPLES = 1024
_ROUNDING = 1e-3
"""Relative. Ranks with other numbers of threads add in another order, and what is chaotic enlarges that."""


class _Loops:
    """What the loops of this process have come to."""

    def __init__(self) -> None:
        self.thread: int | None = None
        """The one that takes steps: messages have one order in one thread only."""
        self.has_said_eager = False
        self.has_warned_of_draws = False
        self.divided_since_update = False
        """Whether a divided function has run since an optimizer was called eagerly: the gradients may be its."""
        self.is_updating = False
        """Whether an optimizer that was called eagerly is at work."""
        self.num_gradients = 0
        self.num_updates: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """Of each optimizer that is called eagerly."""


_loops = _Loops()


def run_alike() -> bool:
    """Whether the loops of this script belong to all ranks: it names no strategy, and nobody trains apart."""
    world = current_world()
    if world.data.size == 1 or not world.launched or world.solo_training_allowed or named_strategies:
        return False
    if Run.num_running:
        return False
    if "mpi4py.MPI" in sys.modules and not world.formed:
        return False  # the script exchanges what it wants to by itself
    return not is_as_one_worker() and not tf.distribute.has_strategy() and drop_in_strategy() is not None


def note_divided() -> None:
    """A function of this loop was divided."""
    _loops.divided_since_update = True


def refuse_other_threads() -> None:
    """Steps are taken in one thread.

    Raises:
        RuntimeError: another thread has taken steps before.
    """
    if not _is_loops_thread():
        raise RuntimeError(
            "steps of training loops are taken in several threads (or in a tf.py_function), and ranks exchange what "
            "they compute in one order, that of one thread. Train in one thread; if the workers are meant to train "
            "separate models: paceline run --allow-independent. [no-strategy]"
        )


def is_compared(number: int) -> bool:
    """Whether ranks compare what they have at the step of this number, from 1."""
    return number & (number - 1) == 0 or number % _MOST_STEPS_APART == 0


def taken_eagerly(gradients: Any) -> None:
    """Eager gradients of variables: all ranks compute the same. Collective at some steps.

    Raises:
        DesynchronizedError: they do not.
    """
    world = current_world()
    if not _is_loops_thread():
        world.has_lonely_gradients = True
        return
    _say_eager()
    _loops.num_gradients += 1
    if is_compared(_loops.num_gradients):
        compare_numbers("gradients of an eager tape", tensors_of(gradients), world.data)


def updated_eagerly(optimizer: Any, gradients: Sequence[Any], apply: Callable[[list[Any]], Any]) -> Any:
    """An optimizer's update, which is called eagerly on all ranks, with the chief's gradients. Collective.

    Args:
        optimizer: Whose.
        gradients: This rank's.
        apply: The update.

    Raises:
        DesynchronizedError: the ranks' gradients are not the same.
    """
    if not _loops.is_updating:
        refuse_other_threads()
        if not _loops.divided_since_update:
            _say_eager()
        _loops.divided_since_update = False
    return updated_alike(optimizer, gradients, apply)


def updated_alike(optimizer: Any, gradients: Sequence[Any], apply: Callable[[list[Any]], Any]) -> Any:
    """An update that every rank makes from gradients of the whole batch: with the chief's. Collective.

    Raises:
        DesynchronizedError: the ranks' gradients are not the same.
    """
    if _loops.is_updating:  # an optimizer in another one
        return apply(list(gradients))
    world = current_world()
    number = _loops.num_updates[optimizer] = _loops.num_updates.get(optimizer, 0) + 1
    tensors = tensors_of(gradients)
    if is_compared(number):
        compare_numbers("gradients of an optimizer", tensors, world.data)
    _loops.is_updating = True
    try:
        return apply(_with_tensors(gradients, _of_chief(tensors, world)))
    finally:
        _loops.is_updating = False


def tensors_of(structure: Any) -> list[Any]:
    """The tensors in it, also those that sparse ones consist of."""
    leaves = (leaf for leaf in tf.nest.flatten(structure) if leaf is not None)
    parts = (leaf.values if isinstance(leaf, tf.IndexedSlices) else leaf for leaf in leaves)
    return [tf.convert_to_tensor(part) for part in parts]


def compare_data(name: str, tensors: Sequence[Any], group: Group, *, is_divided: bool) -> None:
    """Compares what ranks give to a function: floating numbers but for their rounding, all else exactly. Collective.

    Args:
        name: The function.
        tensors: Numbers and text; eager.
        group: The ranks.
        is_divided: Whether each rank computes own rows: then they may differ in what chance has changed of a picture.

    Raises:
        DesynchronizedError: they give different data.
    """
    kind = f"{name} {[one.dtype.name for one in tensors]}"
    arrays = [np.frombuffer(kind.encode(), np.uint8), *(np.atleast_1d(np.asarray(one.numpy())) for one in tensors)]
    is_floating = np.array([False, *(one.dtype.is_floating for one in tensors)])
    parts = [
        (
            crc32(f"{array.shape} {array.dtype}".encode()) if floats else part.digest,
            part.is_measured,
            part.tells_rows_apart,
        )
        for array, floats, part in zip(arrays, is_floating, parts_of(arrays), strict=True)
    ]
    everyones = group.all_gather(np.array(parts, np.int64))
    chiefs = everyones[0]
    if any(len(theirs) != len(chiefs) or theirs[0, 0] != chiefs[0, 0] for theirs in everyones):
        raise DesynchronizedError(
            f"the ranks call different functions of the script, or one with other arguments: this one calls {name}. "
            f"{lines_of_ranks(group)} [ranks-differ]"
        )
    alike = _alike_numbers([one for one in tensors if one.dtype.is_floating], group)
    for rank, theirs in enumerate(everyones):
        theirs[is_floating, 0] += ~alike[rank]
    different = [rank for rank, theirs in enumerate(everyones) if not np.array_equal(theirs, chiefs)]
    if not different:
        return
    if is_divided and all(may_be_same_rows(chiefs[1:], everyones[rank][1:]) for rank in different):
        if group.rank == 0 and not _loops.has_warned_of_draws:
            _LOGGER.warning("%s", other_draws(different))
        _loops.has_warned_of_draws = True
        return
    numbers = sorted({int(at) for rank in different for at in np.flatnonzero(everyones[rank][:, 0] != chiefs[:, 0])})
    raise _differ(f"the tensors number {', '.join(map(str, numbers))} that {name} is given", different, group)


def compare_numbers(what: str, tensors: Sequence[Any], group: Group) -> None:
    """Compares numbers that all ranks have computed, but for their rounding. Collective.

    Raises:
        DesynchronizedError: they have computed different ones.
    """
    alike = _alike_numbers([one for one in tensors if one.dtype.is_floating], group)
    if different := [rank for rank, each in enumerate(alike) if not each.all()]:
        raise _differ(f"the {what}", different, group)


def _alike_numbers(tensors: Sequence[Any], group: Group) -> list[Any]:
    """Of each rank, for each of these tensors, whether it is the chief's but for rounding. Collective."""
    own = [_summary(tensor) for tensor in tensors]
    everyones = group.all_gather(np.array(own, np.float64).reshape(-1, 1 + _NUM_SAMPLES))
    return [_are_alike(theirs, everyones[0]) for theirs in everyones]


def _differ(what: str, ranks: Sequence[int], group: Group) -> DesynchronizedError:
    return DesynchronizedError(
        f"the ranks read different data, or do not compute the same: {what} differ between rank 0 and rank(s) "
        f"{', '.join(map(str, ranks))}. In a loop of the script's own every rank reads the same whole batches, and "
        "Paceline divides each step. Usual causes: random numbers without a seed, of an environment or of NumPy; "
        "files that are listed in another order on each host; code that asks for its rank; a clock. Set a seed: "
        "keras.utils.set_random_seed(1) at the top of the script covers Python, NumPy and TensorFlow; environments "
        f"have a seed of their own (env.reset(seed=1)). {lines_of_ranks(group)} [data-differs]"
    )


def _summary(tensor: Any) -> Any:
    """The size of a tensor's numbers, and some of them, from all over it."""
    values = np.asarray(tf.cast(tensor, tf.float64)).reshape(-1)
    if not values.size:
        return np.zeros(1 + _NUM_SAMPLES)
    places = np.linspace(0, values.size - 1, _NUM_SAMPLES).astype(np.int64)
    return np.concatenate([[np.abs(values).mean()], values[places]])


def _are_alike(theirs: Any, chiefs: Any) -> Any:
    """For each line, one of a tensor; no number is like no number."""
    if theirs.shape != chiefs.shape:
        return np.zeros(len(chiefs), bool)
    limit = _ROUNDING * (np.abs(chiefs) + chiefs[:, :1]) + 1e-12
    both_odd = ~np.isfinite(chiefs) & ~np.isfinite(theirs)
    with np.errstate(invalid="ignore"):
        return ((np.abs(theirs - chiefs) <= limit) | both_odd).all(axis=1)


def _of_chief(tensors: Sequence[Any], world: World) -> list[Any]:
    world.has_combined = True
    arrays = world.data.broadcast([tensor.numpy() for tensor in tensors])
    return [tf.constant(array, tensor.dtype) for array, tensor in zip(arrays, tensors, strict=True)]


def _with_tensors(gradients: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    left = iter(tensors)

    def one(gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(next(left), gradient.indices, gradient.dense_shape)
        return None if gradient is None else next(left)

    return [one(gradient) for gradient in gradients]


def _is_loops_thread() -> bool:
    if _loops.thread is None:
        _loops.thread = threading.get_ident()
    return _loops.thread == threading.get_ident()


def _say_eager() -> None:
    if not _loops.has_said_eager:
        _loops.has_said_eager = True
        WholeStep("this loop", current_world()).say("its gradients are taken eagerly. Put the step into a tf.function")
