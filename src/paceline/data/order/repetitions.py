"""Shuffles below a `repeat`: their next iterator begins where the steps have come to, not where reading ahead has.

Such a shuffle draws a seed for each repetition, when the first row of that is read. How far TensorFlow has read ahead
when a `fit` ends is a matter of buffers and of time, so the next `fit` would begin with one order or with the one after
it, on one rank otherwise than on another. Here a reading draws from a generator of its own, and the script's generator
draws as often as the rows need that steps have asked for, and those that plain Keras usually reads ahead of them:

    repetition           1                      2
    batches              0 1 2 3 4 5 6 7 8 9  │ 10 11 12 …
    steps have asked for 0 1 … 8               read ahead by plain Keras: 9        script's generator: 1 draw
    read on this rank    0 1 … 8 9 10 11      own generator: 2 draws

Where the rows of a repetition are not known, or a stage behind it, all draw from the script's generator as they read.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.order.seed_draws import SeedDraws, draws_of
from paceline.data.order.shuffles import captures_dataset, has_orders
from paceline.data.own_rows.orders import is_left_out, made_again
from paceline.data.own_rows.staying_maps import BATCHES, MAPS

Counting = Callable[[int], Counter[int]]
"""From the number of elements that are asked of a stage to the draws of each generator; for 0, it is not read."""

_MAKE_ONE_ITERATOR = frozenset(
    [
        *("AssertCardinality", "DenseToRagged", "Filter", "FlatMap", "Interleave", "PaddedBatch", "ParallelInterleave"),
        "Unbatch",
    ]
)
"""Kinds of stages that make one iterator over their source, and read nobody knows how much of it."""

_AHEAD_OF_MAP = 1
"""A parallel map computes as many elements as it has calls, and has the next one at hand."""


_NONE: Counter[int] = Counter()
_ENDLESS = 1 << 62


class _UnknownStageError(Exception):
    """Draws cannot be counted, or the stage cannot be made again."""


class ScriptsDraws:
    """Stands in where a reading draws from the script's own generators, or there are none."""

    def new_iterator(self) -> None:
        """A new iterator is about to be made."""

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked the newest iterator for so many batches."""

    def go_on(self, batches: Sequence[int]) -> bool:
        """The newest iterator has been asked for the last number of batches, after others that had been.

        Returns:
            Whether this counts; else whoever goes on has to draw, or to read.
        """
        del batches
        return False

    def pass_over(self, batches: Sequence[int]) -> bool:
        """Iterators have been asked for so many batches each; returns the same."""
        del batches
        return False


class OwnDraws(ScriptsDraws):
    """The draws for the iterators over one dataset; get it from `with_own_draws`.

    Args:
        counting: Of the script's dataset.
        shuffles: A shuffle of the script for each of its generators, by the identity of that.
        own: The generators of the reading, likewise.
    """

    def __init__(self, counting: Counting, shuffles: dict[int, Any], own: dict[int, compat.Seeds]) -> None:
        self._counting = counting
        self._shuffles = shuffles
        self._own_seeds = own
        self._own: dict[int, SeedDraws] = {}
        self._before: Counter[int] = Counter()
        """What the script's generators had drawn when the newest iterator was made."""
        self._counted: Counter[int] = Counter()
        """What they have drawn for it."""

    def new_iterator(self) -> None:
        """A new iterator is about to be made."""
        self._before = Counter({key: draws_of(shuffle).number for key, shuffle in self._shuffles.items()})
        self._counted = Counter()
        self._set_own()
        self.ask_for(0)

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked the newest iterator for so many batches."""
        if (now := self._counting(num_batches)) != self._counted:
            self._draw(now - self._counted)
            self._counted = now

    def go_on(self, batches: Sequence[int]) -> bool:
        """See `ScriptsDraws`."""
        *before, current = batches or (0,)
        earlier, counted = self._all_of(before), self._counting(current)
        self._draw(earlier + counted - self._counted)
        self._before += earlier
        self._counted = counted
        self._set_own()
        return True

    def pass_over(self, batches: Sequence[int]) -> bool:
        """See `ScriptsDraws`."""
        self._draw(self._all_of(batches))
        return True

    def _all_of(self, batches: Sequence[int]) -> Counter[int]:
        return sum(map(self._counting, batches), _NONE)

    def _draw(self, more: Counter[int]) -> None:
        for key, number in more.items():
            draws = draws_of(self._shuffles[key])
            draws.number += number

    def _set_own(self) -> None:
        """The own generators draw next what the script's would have drawn when the newest iterator was made."""
        for key, shuffle in self._shuffles.items():
            if number := self._before[key]:
                if key not in self._own:
                    self._own[key] = SeedDraws(shuffle, self._own_seeds[key], like=draws_of(shuffle))
                self._own[key].number = number


def with_own_draws(dataset: Any) -> tuple[Any, ScriptsDraws]:
    """A dataset of global batches to read in place of the script's, and who keeps its draws apart from the script's.

    Args:
        dataset: The script's, or what Keras has made of it.
    """
    if not (tf.executing_eagerly() and isinstance(dataset, tf.data.Dataset)):
        return dataset, ScriptsDraws()
    stages = list(compat.with_sources(dataset))
    shuffles = {id(compat.seeds_of(one)): one for one in stages if _draws(one)}
    is_repeated = bool(shuffles) and any(compat.kind_of(one) == "Repeat" for one in stages)
    if not is_repeated or not all(map(compat.is_seeded, shuffles.values())):
        return dataset, ScriptsDraws()
    own = {key: compat.Seeds(one) for key, one in shuffles.items()}
    try:
        counting = _read_ahead(dataset)
        again = _drawing_from(own, dataset, {})
    except _UnknownStageError:
        return dataset, ScriptsDraws()
    return (again, OwnDraws(counting, shuffles, own)) if again is not dataset else (dataset, ScriptsDraws())


def _draws(one: Any) -> bool:
    return compat.has_shared_seeds(one) and compat.is_reshuffled(one)


def _drawing_from(own: dict[int, compat.Seeds], one: Any, made: dict[int, Any]) -> Any:
    """`one` with shuffles that draw from the reading's own generators; itself where there are none."""
    if id(one) not in made:
        sources = compat.inputs_of(one)
        again = [_drawing_from(own, source, made) for source in sources]
        is_same = all(new is source for new, source in zip(again, sources, strict=True))
        made[id(one)] = one if is_same and not _draws(one) else _made_again(own, one, again)
    return made[id(one)]


def _made_again(own: dict[int, compat.Seeds], one: Any, sources: list[Any]) -> Any:
    if _draws(one):
        return compat.shuffled_alike(sources[0], one, seeds=own[id(compat.seeds_of(one))])
    if compat.kind_of(one) in MAPS and compat.traced_function_of(one) is not None:
        return compat.mapped_alike(sources[0], one)
    if (again := made_again(one, sources)) is None:
        raise _UnknownStageError
    return again


def _read_ahead(dataset: Any) -> Counting:
    """Counts for batches that steps ask for: plain TensorFlow adds a prefetch where there is none behind the stages."""
    last = dataset
    while compat.kind_of(last) == "Options":
        [last] = compat.inputs_of(last)
    is_ahead = compat.kind_of(last) in ("Prefetch", "ParallelMap") or dataset.options().autotune.enabled is False
    below = _counting(dataset)
    return below if is_ahead else _more(below, lambda number: number + 1)


def _counting(one: Any) -> Counting:
    """Who counts for a stage.

    Raises:
        _UnknownStageError: nobody can.
    """
    kind, sources = compat.kind_of(one), compat.inputs_of(one)
    if captures_dataset(one):
        raise _UnknownStageError
    if not has_orders(one):
        return _nothing
    if kind == "Repeat" and not is_left_out(one):
        return _repeated(one, sources[0])
    below = _sum([_counting(source) for source in sources])
    return below if is_left_out(one) else _of_stage(one, kind, below)


def _of_stage(one: Any, kind: str, below: Counting) -> Counting:
    if kind == "Shuffle" and compat.has_shared_seeds(one):
        return _shuffled(one, below)
    if kind in ("Zip", "Options"):
        return below
    if kind in ("Take", "Skip") and (count := int(compat.count_of(one))) >= 0:
        if not count:
            return _nothing
        return _more(below, (lambda n: min(n, count)) if kind == "Take" else (lambda n: n + count))
    if kind in MAPS:
        ahead = _calls_of(one) + _AHEAD_OF_MAP if kind == "ParallelMap" or _becomes_parallel(one) else 0
        return _more(below, lambda number: number + ahead)
    if kind in BATCHES and (given := compat.options_of_batch(one)) is not None:
        size, ahead = given["batch_size"], _calls_of(one) if kind == "ParallelBatch" else 0
        return _more(below, lambda number: (number + ahead) * size)
    if kind == "Prefetch" and (ahead := compat.read_ahead_of(one)) != 0:  # of nothing: TensorFlow 2.17 leaves it out
        elements = max(ahead, 1)
        return _more(below, lambda number: number + elements)
    if kind not in _MAKE_ONE_ITERATOR or any(compat.kind_of(stage) == "Repeat" for stage in compat.with_sources(one)):
        raise _UnknownStageError
    return below  # the number does not matter: there is no repetition


def _repeated(one: Any, source: Any) -> Counting:
    count, below = int(compat.count_of(one)), _counting(source)
    if count == 0:
        return _nothing
    rows = int(source.cardinality())
    if rows <= 0:
        raise _UnknownStageError
    while is_left_out(source):
        [source] = compat.inputs_of(source)
    repetitions = count if count > 0 else _ENDLESS
    if compat.kind_of(source) == "Shuffle":
        return _shuffled_and_repeated(source, rows, repetitions)
    over = _repetitions(below, rows, repetitions)
    # TensorFlow makes the iterator over another repetition before it looks whether there is to be one.
    return lambda number: over(number) + (_NONE if 0 < number <= repetitions * rows else below(0))


def _shuffled_and_repeated(shuffle: Any, rows: int, repetitions: int) -> Counting:
    """TensorFlow makes one stage of both: its buffer is filled with rows of the next repetition, too."""
    [source] = compat.inputs_of(shuffle)
    below, own, elements = _counting(source), _own_of(shuffle), compat.shuffle_buffer_of(shuffle) or 1
    if below(1) and elements > 2 * rows:  # it stops filling where it holds rows of several repetitions
        raise _UnknownStageError
    over = _repetitions(below, rows, repetitions)

    def counted(number: int) -> Counter[int]:
        begun = max(1, min(-(-number // rows), repetitions))
        return _times(begun, own) + (over(number - 1 + elements) if number else _NONE)

    return counted


def _repetitions(below: Counting, rows: int, repetitions: int) -> Counting:
    """A repetition is over when an element behind its last one is asked for."""

    def counted(number: int) -> Counter[int]:
        over = min(max(number - 1, 0) // rows, repetitions)
        return _times(over, below(rows + 1)) + (below(number - over * rows) if number and over < repetitions else _NONE)

    return counted


def _shuffled(one: Any, below: Counting) -> Counting:
    own, elements = _own_of(one), compat.shuffle_buffer_of(one) or 1
    # Its source has no iterator before the first element is asked for, and then fills the buffer.
    return lambda number: own + (below(number - 1 + elements) if number else _NONE)


def _own_of(shuffle: Any) -> Counter[int]:
    return Counter([id(compat.seeds_of(shuffle))] if compat.is_reshuffled(shuffle) else [])


def _times(number: int, draws: Counter[int]) -> Counter[int]:
    return Counter({key: number * each for key, each in draws.items()})


def _nothing(_: int) -> Counter[int]:
    return _NONE


def _sum(parts: list[Counting]) -> Counting:
    return lambda number: sum((part(number) for part in parts), _NONE)


def _more(below: Counting, asked: Callable[[int], int]) -> Counting:
    return lambda number: below(asked(number) if number else 0)


def _calls_of(one: Any) -> int:
    """Parallel calls; AUTOTUNE begins with few."""
    return max(int(compat.calls_of(one)), 1)


def _becomes_parallel(one: Any) -> bool:
    """Whether plain TensorFlow makes a parallel map of it."""
    return not any(map(compat.has_state, set().union(*compat.operations_of_functions(one))))
