"""Where the time of an input pipeline goes, stage by stage, and what would make it faster: measured, not guessed.

TensorFlow counts how long threads are in each stage while an iterator runs (`tf.raw_ops.IteratorGetModelProto`). Advice
is applied to the script's dataset, and both are read in turn: what is printed is how many times faster that was.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.fingerprint import draws_by_chance
from paceline.data.indexed.index_source import source_of
from paceline.data.own_rows.auto_shard import is_sharded_by_hand
from paceline.data.own_rows.division import Whole, rows_of
from paceline.data.own_rows.index_batches import IndexDivision
from paceline.data.own_rows.local_batches import divided, local_batches
from paceline.data.own_rows.own_rows import Division
from paceline.data.own_rows.staying_maps import MAPS, name_of_map, reason_to_stay
from paceline.data.timing.item_profiling import is_py_dataset, profile_of_items
from paceline.data.timing.measuring import WORTH_A_LINE, Speed, gain
from paceline.data.timing.rebuilding import UnknownStageError, interleaved_again, mapped_again, with_change
from paceline.data.timing.stage_waits import waits_of
from paceline.errors import ConfigurationError
from paceline.plan.data_profile import MOSTLY, SECONDS, Advice, DataProfile, StageCost

_ONE_AT_A_TIME = frozenset(["Map", "Interleave", "FlatMap", "Filter", "Scan"])
_OF_ROWS = frozenset(["Batch", "ParallelBatch", "PaddedBatch", "Shuffle", "Repeat"])
_WORTH_AN_ADVICE = 0.1
"""The share of the time that a stage must have."""
_WAITING_CALLS = 16
"""At a time, of a function that waits. Threads of `tf.data` are as many as cores, unless they are unbounded."""
_LARGEST_HELD = 1 << 28
"""Bytes of elements that a stage is measured over."""
_LOOKING_SECONDS = 0.01
_LONGEST_EPOCH_SECONDS = 30.0
"""What is cached must have been read once."""
_LARGEST_CACHE = 1 << 30
_NUM_WORKERS = 2


def profile(dataset: Any, *, seconds: float = SECONDS) -> DataProfile:
    """Measures an input pipeline: what each stage costs, or each item, and what would make it faster.

        print(paceline.data.profile(dataset, seconds=0.5))      # takes about five seconds

    Reads the dataset, for about ten times `seconds`. Shuffles draw the orders of epochs meanwhile, and what has been
    read of a generator is gone, so this belongs into a script of its own, or use ``paceline data profile train.py``.
    Nothing else should run on the host.

    Args:
        dataset: A `tf.data.Dataset` of batches, a `keras.utils.PyDataset`, or a generator of batches.
        seconds: How long each way is read, three times; a generator once.

    Raises:
        ConfigurationError: it is something else, has no row, or is not batched.
    """
    return profile_for(dataset, None, seconds)


def profile_for(
    dataset: Any,
    speed_in_fit: Speed | None,
    seconds: float = SECONDS,
    progress: Callable[[str], None] = lambda _: None,
) -> DataProfile:
    """As `profile`; with `speed_in_fit`, which trains on a dataset, also what each change brings there.

    `progress` is told what is about to be measured.
    """
    if is_py_dataset(dataset) or isinstance(dataset, Iterator):
        return profile_of_items(dataset, speed_in_fit, seconds, progress)
    if not isinstance(dataset, tf.data.Dataset):
        raise ConfigurationError(
            f"Received {type(dataset).__name__} to profile; expected a tf.data.Dataset of batches, a "
            "keras.utils.PyDataset or a generator. Arrays need no profile: rows are gathered. [data-profile]"
        )
    if all(leaf.shape.rank == 0 for leaf in tf.nest.flatten(dataset.element_spec)):
        raise ConfigurationError("The dataset has no batches: add .batch(batch_size). [not-batched]")
    as_in_fit = functools.partial(local_batches, rank=0, size=1)
    clock = _Clock(seconds)
    progress("what each stage costs")
    costs = _costs(dataset, clock)
    division = Whole() if is_sharded_by_hand(dataset) else divided(dataset)
    if not (total := sum(cost.seconds for cost in costs)):
        raise ConfigurationError("All data are read too soon to measure the stages: profile more rows. [data-profile]")
    progress("how much each stage waits")
    waits = [_waits(costs, number, total, seconds) for number in range(len(costs))]
    found = []
    for said, stage, change in _changes(costs, waits, total):
        with contextlib.suppress(UnknownStageError):
            changed = with_change(dataset, stage, change)
            progress(said)
            for _ in changed if said.startswith(".cache") else ():
                pass  # fills the cache
            pair = as_in_fit(dataset), as_in_fit(changed)
            faster = gain(clock.rows_per_second, *pair)
            if faster >= WORTH_A_LINE:
                progress(f"{said}, in fit" if speed_in_fit else said)
                found.append(Advice(said, faster, speed_in_fit and gain(speed_in_fit, *pair)))
    progress("what several workers share")
    rank = local_batches(dataset, 0, _NUM_WORKERS)
    return DataProfile(
        clock.rows_per_second(as_in_fit(dataset)),
        tuple(_marked(cost, share, total, division) for cost, share in zip(costs, waits, strict=True)),
        tuple(sorted(found, key=lambda one: -one.gain)),
        _NUM_WORKERS * gain(clock.rows_per_second, as_in_fit(dataset), rank),
        clock.share_of_starts(as_in_fit(dataset)),
        getattr(division, "stays", ""),
    )


class _Clock:
    """Reads datasets for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def rows_per_second(self, dataset: Any) -> float:
        """Of whole epochs; or of a part of one, after the first batch, before which buffers are filled."""
        rows, elapsed = 0, 0.0
        while elapsed < self._seconds:
            begun = time.perf_counter()
            iterator = iter(dataset)
            if (first := next(iterator, None)) is None:
                raise ConfigurationError("The dataset has no batch. [data-profile]")
            filled, of_rest = time.perf_counter(), 0
            for batch in iterator:
                of_rest += int(rows_of(batch))
                if elapsed + time.perf_counter() - filled >= self._seconds:
                    return (rows + of_rest) / (elapsed + time.perf_counter() - filled)
            rows += int(rows_of(first)) + of_rest
            elapsed += time.perf_counter() - begun
        return rows / elapsed

    def share_of_starts(self, dataset: Any) -> float:
        """Of the time of an epoch, what passes before its first batch; 0 if it is longer than is looked at."""
        begun = time.perf_counter()
        iterator = iter(dataset)
        next(iterator, None)
        started = time.perf_counter()
        for _ in iterator:
            if time.perf_counter() - begun >= self._seconds:
                return 0.0
        return (started - begun) / (time.perf_counter() - begun)

    def model(self, dataset: Any) -> tuple[Any, float]:
        """TensorFlow's own record of an iterator that has run for a while, and the rows of a batch."""
        options = tf.data.Options()
        options.autotune.enabled = True  # else there is no record
        options.experimental_optimization.apply_default_optimizations = False  # else stages are put together
        iterator, rows, batches, begun = iter(dataset.with_options(options)), 0, 0, time.perf_counter()
        with _latest_model(iterator) as latest:
            for batch in iterator:
                rows, batches = rows + int(rows_of(batch)), batches + 1
                if time.perf_counter() - begun >= self._seconds:
                    break
        if not rows:
            raise ConfigurationError("The dataset has no row. [data-profile]")
        return latest[-1], rows / batches


@contextlib.contextmanager
def _latest_model(iterator: Any) -> Iterator[list[Any]]:
    """The last record of an iterator in which all stages are: those that have come to their end are in none."""
    found, is_over = [compat.model_of(iterator)], threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOKING_SECONDS):
            now = compat.model_of(iterator)
            if len(now.nodes) >= len(found[-1].nodes):
                found[:] = [now]

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class _Cost:
    stage: Any
    """Of the script's dataset."""
    seconds: float
    """Of threads in the stage, for a row of a batch."""
    element_bytes: float
    elements_per_row: float


def _costs(dataset: Any, clock: _Clock) -> list[_Cost]:
    model, rows_of_batch = clock.model(dataset)
    nodes = model.nodes

    def walk(one: Any, number: int, elements_per_row: float) -> Iterator[_Cost]:
        if compat.kind_of(one) == "Options":
            yield from walk(compat.inputs_of(one)[0], number, elements_per_row)
            return
        node = nodes[number]
        num_by_method = len(compat.inputs_by_method(one))
        sources = compat.inputs_of(one)[num_by_method:]
        size = node.bytes_produced / max(1, node.num_elements)
        if source_of(one) is not None:  # of whose stages the script knows nothing
            yield _Cost(
                one,
                _seconds_below(nodes, number) / max(1, node.num_elements) * elements_per_row,
                size,
                elements_per_row,
            )
            return
        by_method, given = node.inputs[:num_by_method], node.inputs[num_by_method:]
        inner, own = [*by_method, *given[len(sources) :]], _seconds_of(node)
        for source, input_ in zip(sources, given, strict=False):
            ratio = node.ratio or nodes[input_].num_elements / max(1, node.num_elements)
            yield from walk(source, input_, elements_per_row * ratio)
        # Datasets that an interleave makes are a part of it, and so are those that choose among its sources.
        own += sum(_seconds_below(nodes, input_) for input_ in inner) / max(1, node.num_elements)
        if compat.kind_of(one) == "Shuffle":
            own = 0.0  # what TensorFlow counts is the wait for rows
        yield _Cost(one, own * elements_per_row, size, elements_per_row)

    [below_root] = nodes[model.output].inputs
    return list(walk(dataset, below_root, 1 / rows_of_batch))


def _seconds_of(node: Any) -> float:
    return float(node.processing_time / 1e9 / max(1, node.num_elements))


def _seconds_below(nodes: Any, number: int) -> float:
    node = nodes[number]
    below: list[float] = [_seconds_below(nodes, one) for one in node.inputs]
    return float(node.processing_time / 1e9 + sum(below))


def _waits(costs: list[_Cost], number: int, total: float, seconds: float) -> float | None:
    """Of the time of a stage, what is waiting; None: that was not measured, as of stages that cost little."""
    cost = costs[number]
    if cost.seconds < _WORTH_AN_ADVICE * total:
        return None
    before = {id(one) for one in compat.with_sources(cost.stage) if one is not cost.stage}
    seconds_before = sum(other.seconds for other in costs if id(other.stage) in before)
    elements = min(seconds / total * cost.elements_per_row, _LARGEST_HELD / max(1.0, cost.element_bytes))
    return waits_of(cost.stage, max(2, int(elements)), is_first=seconds_before < _WORTH_AN_ADVICE * cost.seconds)


def _marked(cost: _Cost, waits: float | None, total: float, division: Any) -> StageCost:
    one, kind = cost.stage, compat.kind_of(cost.stage)
    own = division.maps if isinstance(division, Division) else []
    if (source := source_of(one)) is not None:
        name = source.name
    else:
        name = compat.method_of(one)
        if compat.calls_function_of_script(one):
            name += f" {name_of_map(one)}"
    return StageCost(
        name,
        cost.seconds,
        cost.seconds / total,
        waits,
        one_at_a_time=kind in _ONE_AT_A_TIME,
        on_own_rows=isinstance(division, IndexDivision) or any(stage is one for stage in own),
        in_python=any("PyFunc" in kind for kinds in compat.operations_of_functions(one) for kind in kinds),
    )


def _changes(
    costs: list[_Cost], waits: list[float | None], total: float
) -> Iterator[tuple[str, Any, Callable[[Any], Any]]]:
    """What might make the dataset faster: what to write, the stage, and what then stands in its place."""
    for cost, share in zip(costs, waits, strict=True):
        one = cost.stage
        if cost.seconds < _WORTH_AN_ADVICE * total:
            continue
        for options in _parallel_calls(one, does_wait=share is not None and share >= MOSTLY):
            written = ", ".join(f"{name}={_SPELLED.get(value, value)}" for name, value in options.items())
            again = functools.partial(interleaved_again, one, options)
            if compat.kind_of(one) in MAPS:
                again = functools.partial(mapped_again, one, {**compat.options_of_map(one), **options})
            yield f"{written} on `{name_of_map(one)}`", one, again
    kinds = [compat.kind_of(cost.stage) for cost in costs]
    end_of_rows = next((at for at, kind in enumerate(kinds) if kind in _OF_ROWS), len(kinds))
    maps = [cost for cost, kind in zip(costs[:end_of_rows], kinds, strict=False) if kind in MAPS]
    if not maps or "Cache" in kinds or "Zip" in kinds:
        return
    last = maps[-1]
    number = int(last.stage.cardinality())
    takes_seconds = number * sum(cost.seconds for cost in costs[: costs.index(last) + 1])
    size = number * last.element_bytes
    is_small = number > 0 and size <= _LARGEST_CACHE and takes_seconds <= _LONGEST_EPOCH_SECONDS
    is_always_the_same = not any(reason_to_stay(cost.stage) for cost in maps) and not draws_by_chance(last.stage)
    if is_small and is_always_the_same:
        said = f".cache() behind `{name_of_map(last.stage)}` ({size / 1e6:.1f} MB), from the second epoch on"
        yield said, last.stage, lambda _: last.stage.cache()


_SPELLED: dict[Any, str] = {tf.data.AUTOTUNE: "tf.data.AUTOTUNE"}


def _parallel_calls(one: Any, *, does_wait: bool) -> Iterator[dict[str, Any]]:
    """Options of a map or interleave with more calls at a time: as many as cores, or of one that waits, more."""
    kind = compat.kind_of(one)
    if kind in MAPS and does_wait:
        if not compat.options_of_map(one).get("use_unbounded_threadpool"):
            yield {"num_parallel_calls": _WAITING_CALLS, **compat.unbounded_threads()}
    elif kind == "Interleave" and does_wait and (given := compat.options_of_interleave(one)):
        yield {"num_parallel_calls": given[1]}  # the cycle
        yield {"num_parallel_calls": tf.data.AUTOTUNE}
    elif kind in ("Map", "Interleave"):
        yield {"num_parallel_calls": tf.data.AUTOTUNE}
