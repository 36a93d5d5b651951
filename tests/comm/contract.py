"""The contract of `Communicator` as a test suite: every case runs on every implementation and world size.

A case is a function of a communicator; all ranks run it at the same time. It asserts what this rank received, and
returns the arrays that must have the same bits on all ranks: the runner compares them from outside, so that no
implementation vouches for itself. What a rank hands in is a function of its number, so that each rank knows what the
others did.
"""

import functools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from paceline.comm.communicator import Array, Communicator, Reduction
from paceline.errors import DesynchronizedError

Case = Callable[[Communicator], Iterable[Array]]

CASES: dict[str, Case] = {}
"""What every implementation must pass, by name, in the order in which all ranks run them."""

DESYNCHRONISED_CASES: dict[str, Case] = {}
"""What implementations that can tell ranks in different calls must pass as well."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = [np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
REALS = [np.dtype(name) for name in ("f2", "f4", "f8")] + [BFLOAT16]
COMPLEX = [np.dtype(name) for name in ("c8", "c16")]
DTYPES = [np.dtype(bool), *INTEGERS, *REALS, *COMPLEX]
KEPT_CALLS = 50
ROUND_BYTES = 1 << 20
"""Arrays of about this size meet the borders of an implementation that cuts its work in rounds."""


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def desynchronised(function: Case) -> Case:
    DESYNCHRONISED_CASES[function.__name__] = function
    return function


def values(dtype: Any, shape: Any, rank: int, seed: int = 0) -> Array:
    """What `rank` hands in: small integers in any dtype, so that sums are exact in every order."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    generator = np.random.default_rng([seed, rank])
    # A pattern that no implementation's rounds or slices are a multiple of, repeated: drawing millions would be slow.
    pattern = generator.integers(0 if dtype.kind in "ub" else -9, 10, min(count, 10_007))
    if dtype.kind == "b":
        pattern = pattern > 6
    if dtype.kind == "c":
        pattern = pattern + 1j * pattern[::-1]
    return np.resize(pattern.astype(dtype), shape)


def combined(parts: Sequence[Array], reduction: Reduction = Reduction.SUM) -> Array:
    """The expected result of `all_reduce` on one array."""
    operation = {Reduction.SUM: np.add, Reduction.MIN: np.minimum, Reduction.MAX: np.maximum}[reduction]
    return np.asarray(functools.reduce(operation, parts)).astype(parts[0].dtype)


def assert_same(received: Array, expected: Array) -> None:
    assert isinstance(received, np.ndarray)
    assert received.dtype == expected.dtype
    assert received.shape == expected.shape
    assert bits(received) == bits(expected), f"received {received!r}, expected {expected!r}"


def bits(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def check_all_reduce(
    communicator: Communicator,
    templates: Sequence[tuple[Any, Any]],
    reduction: Reduction = Reduction.SUM,
    seed: int = 0,
) -> list[Array]:
    """One `all_reduce` of arrays with these dtypes and shapes, compared with what it must give."""
    parts = [
        [values(dtype, shape, rank, seed + index) for index, (dtype, shape) in enumerate(templates)]
        for rank in range(communicator.size)
    ]
    results = communicator.all_reduce(parts[communicator.rank], reduction)
    assert isinstance(results, list)
    for result, *of_ranks in zip(results, *parts, strict=True):
        assert_same(result, combined(of_ranks, reduction))
    return results


def check_all_gather(
    communicator: Communicator,
    dtype: Any,
    rows: Callable[[int], int],
    row_shape: tuple[int, ...] = (),
    seed: int = 0,
) -> list[Array]:
    parts = [values(dtype, (rows(rank), *row_shape), rank, seed) for rank in range(communicator.size)]
    results = communicator.all_gather(parts[communicator.rank])
    assert isinstance(results, list)
    for result, part in zip(results, parts, strict=True):
        assert_same(result, part)
    return results


def check_broadcast(
    communicator: Communicator, templates: Sequence[tuple[Any, Any]], seed: int = 0
) -> list[Array]:
    parts = [
        [values(dtype, shape, rank, seed + index) for index, (dtype, shape) in enumerate(templates)]
        for rank in (0, communicator.rank)
    ]
    results = communicator.broadcast(parts[1])
    assert isinstance(results, list)
    for result, chiefs in zip(results, parts[0], strict=True):
        assert_same(result, chiefs)
    return results


# The group.


@case
def rank_and_size(communicator: Communicator) -> Iterable[Array]:
    assert 0 <= communicator.rank < communicator.size
    everyone = communicator.all_gather(np.array([communicator.rank]))
    assert [part.tolist() for part in everyone] == [[rank] for rank in range(communicator.size)]
    return everyone


@case
def barrier_waits_for_all(communicator: Communicator) -> Iterable[Array]:
    with tempfile.TemporaryDirectory() as mine:
        path = np.frombuffer(mine.encode().ljust(200), np.uint8)
        [chiefs] = communicator.broadcast([path])
        folder = Path(bits(chiefs).decode().rstrip())
        for number in range(20):
            (folder / f"{number}_{communicator.rank}").touch()
            communicator.barrier()
            assert len(list(folder.glob(f"{number}_*"))) == communicator.size
        communicator.barrier()  # the chief removes the folder
    return [chiefs]


# all_reduce.


def _sums(dtype: np.dtype[Any]) -> Case:
    def all_reduce_sum(communicator: Communicator) -> Iterable[Array]:
        return check_all_reduce(communicator, [(dtype, 7), (dtype, (3, 5)), (dtype, ()), (dtype, 1000)])

    return all_reduce_sum


def _extremes(dtype: np.dtype[Any]) -> Case:
    def all_reduce_min_and_max(communicator: Communicator) -> Iterable[Array]:
        templates = [(dtype, 7), (dtype, (3, 5)), (dtype, ()), (dtype, 1000)]
        return [
            *check_all_reduce(communicator, templates, Reduction.MIN),
            *check_all_reduce(communicator, templates, Reduction.MAX),
        ]

    return all_reduce_min_and_max


for _dtype in DTYPES:
    CASES[f"all_reduce_sum_of_{_dtype.name}"] = _sums(_dtype)
    if _dtype.kind != "c":
        CASES[f"all_reduce_min_and_max_of_{_dtype.name}"] = _extremes(_dtype)


@case
def complex_numbers_have_no_order(communicator: Communicator) -> Iterable[Array]:
    for reduction in (Reduction.MIN, Reduction.MAX):
        try:
            communicator.all_reduce([np.ones(3, np.complex64)], reduction)
        except TypeError:
            pass
        else:
            raise AssertionError(f"{reduction} of complex numbers was accepted")
    return []


@case
def integers_wrap_around(communicator: Communicator) -> Iterable[Array]:
    largest = [np.array([np.iinfo(dtype).max, 1], dtype) for dtype in INTEGERS]
    results = communicator.all_reduce(largest)
    for result, own in zip(results, largest, strict=True):
        with np.errstate(over="ignore"):
            assert_same(result, own * np.array(communicator.size).astype(own.dtype))
    return results


@case
def extremes_of_all_integers(communicator: Communicator) -> Iterable[Array]:
    rank, size = communicator.rank, communicator.size
    results: list[Array] = []
    for dtype in INTEGERS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        own = np.array([low if rank == 0 else high, high if rank == size - 1 else low, high - rank], dtype)
        [least] = communicator.all_reduce([own], Reduction.MIN)
        [greatest] = communicator.all_reduce([own], Reduction.MAX)
        if size > 1:
            assert_same(least, np.array([low, low, high - size + 1], dtype))
            assert_same(greatest, np.array([high, high, high], dtype))
        results += [least, greatest]
    return results


@case
def special_floats(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for dtype in REALS:
        own = np.array([np.inf, -np.inf, 0.5 if communicator.rank else np.inf, 1.0], dtype)
        [total] = communicator.all_reduce([own])
        expected = [np.inf, -np.inf, np.inf, communicator.size]
        assert total.astype(np.float64).tolist() == expected
        poisoned = np.array([np.nan if communicator.rank == communicator.size - 1 else 1.0], dtype)
        [total] = communicator.all_reduce([poisoned])
        assert np.isnan(total.astype(np.float64)).all()
        results.append(total)
    return results


@case
def sums_that_round(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for dtype, tolerance in zip(REALS, (2e-3, 1e-6, 1e-15, 2e-2), strict=True):
        parts = [np.random.default_rng(rank).random(5000).astype(dtype) for rank in range(communicator.size)]
        [total] = communicator.all_reduce([parts[communicator.rank]])
        exact = sum(part.astype(np.float64) for part in parts)
        assert total.dtype == dtype
        np.testing.assert_allclose(total.astype(np.float64), exact, rtol=tolerance)
        results.append(total)
    return results


@case
def shapes_with_nothing_in_them(communicator: Communicator) -> Iterable[Array]:
    assert communicator.all_reduce([]) == []
    assert communicator.broadcast([]) == []
    shapes = [(0,), (0, 3), (2, 0, 3), ()]
    results = check_all_reduce(communicator, [(np.float32, shape) for shape in shapes])
    results += check_all_reduce(communicator, [(np.float32, (0,))])
    results += check_broadcast(communicator, [(np.float32, shape) for shape in shapes])
    results += check_broadcast(communicator, [(np.float32, (0, 2))])
    results += check_all_reduce(communicator, [(np.float64, 3), (np.float32, 0), (np.float64, (2, 2))])
    return results


@case
def many_arrays_of_many_dtypes(communicator: Communicator) -> Iterable[Array]:
    generator = np.random.default_rng(1)
    templates = [
        (
            DTYPES[generator.integers(len(DTYPES))],
            tuple(generator.integers(0, 6, generator.integers(0, 5)).tolist()),
        )
        for _ in range(300)
    ]
    return [*check_all_reduce(communicator, templates), *check_broadcast(communicator, templates)]


@case
def arrays_of_several_rounds(communicator: Communicator) -> Iterable[Array]:
    templates = [
        (np.float32, 3),
        (np.float32, 800_001),
        (np.int8, 5),
        (np.float64, (400, 1001)),
        (np.float32, ()),
        (BFLOAT16, 600_001),
    ]
    results = check_all_reduce(communicator, templates)
    return [*results, *check_all_reduce(communicator, templates[:5], Reduction.MAX)]


@case
def sizes_at_the_border_of_a_round(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for dtype in (np.dtype(np.float32), np.dtype(np.complex128)):
        border = ROUND_BYTES // dtype.itemsize
        for count in (border - 1, border, border + 1, 2 * border + 1):
            results += check_all_reduce(communicator, [(dtype, count)])
        results += check_all_reduce(communicator, [(dtype, border - 1), (dtype, 1), (dtype, 1)])
    return results


@case
def arguments_in_any_layout(communicator: Communicator) -> Iterable[Array]:
    rank, size = communicator.rank, communicator.size

    def layouts(of_rank: int) -> list[Array]:
        base = values(np.float64, (6, 8), of_rank)
        fixed = base.copy()
        fixed.flags.writeable = False
        unaligned = np.frombuffer(b"x" + base.tobytes(), np.uint8)[1:].view(np.float64)
        return [
            base.T,
            base[::2, ::3],
            base[::-1],
            np.asfortranarray(base),
            np.broadcast_to(base[0, 0], (3, 4)),
            fixed,
            unaligned,
            base[1:1],
            base.reshape(6, 1, 8)[:, 0],
        ]

    def handed_in(of_rank: int) -> list[Array]:
        # Even ranks hand in strided memory, odd ones contiguous: only values, shapes and dtypes must agree.
        arrays = layouts(of_rank)
        return arrays if of_rank % 2 == 0 else [array.copy(order="C") for array in arrays]

    results = communicator.all_reduce(handed_in(rank))
    expected = [layouts(of_rank) for of_rank in range(size)]
    for result, *parts in zip(results, *expected, strict=True):
        assert_same(result, combined(parts))
    broadcast = communicator.broadcast(handed_in(rank))
    for result, chiefs in zip(broadcast, expected[0], strict=True):
        assert_same(result, chiefs)
    gathered: list[Array] = []
    for index, own in enumerate(handed_in(rank)):
        parts = communicator.all_gather(own)
        for of_rank, part in enumerate(parts):
            assert_same(part, expected[of_rank][index])
        gathered += parts
    return [*results, *broadcast, *gathered]


# all_gather and broadcast.


@case
def all_gather_of_every_dtype(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for dtype in DTYPES:
        results += check_all_gather(communicator, dtype, lambda rank: rank + 1)
        results += check_all_gather(communicator, dtype, lambda rank: 3, (2, 3))
    return results


@case
def all_gather_of_uneven_rows(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for rows in (lambda rank: rank, lambda rank: 5 - rank, lambda rank: 3 * (rank % 2), lambda rank: 0):
        results += check_all_gather(communicator, np.float32, rows)
        results += check_all_gather(communicator, np.int64, rows, (2, 3))
        results += check_all_gather(communicator, np.float64, rows, (0,))
    return results


@case
def all_gather_of_large_arrays(communicator: Communicator) -> Iterable[Array]:
    return [
        *check_all_gather(communicator, np.float32, lambda rank: 150_001 + 1000 * rank, (2,)),
        *check_all_gather(communicator, np.uint8, lambda rank: ROUND_BYTES * (rank % 2) + 1),
    ]


@case
def broadcast_of_every_dtype(communicator: Communicator) -> Iterable[Array]:
    return check_broadcast(
        communicator, [(dtype, shape) for dtype in DTYPES for shape in ((), (3,), (2, 5), (1, 1, 7))]
    )


@case
def broadcast_of_large_arrays(communicator: Communicator) -> Iterable[Array]:
    return check_broadcast(communicator, [(np.float32, 400_003), (np.uint8, 3), (np.float64, (300, 401))])


@case
def broadcast_of_values_that_no_sum_would_give(communicator: Communicator) -> Iterable[Array]:
    pattern = np.array([0x7FC00001, 0x80000000, 0x00000001, 0xFF800000], np.uint32)
    own = pattern if communicator.rank == 0 else np.zeros_like(pattern)
    [received] = communicator.broadcast([own.view(np.float32)])
    assert bits(received) == bits(pattern)
    [gathered, *_] = communicator.all_gather(own.view(np.float32))
    assert bits(gathered) == bits(pattern)
    return [received, gathered]


# Who owns the memory.


@case
def arguments_are_not_written(communicator: Communicator) -> Iterable[Array]:
    for shape in ((), (4,), (300, 1000)):
        own = [values(dtype, shape, communicator.rank) for dtype in (np.float32, np.int64, bool)]
        before = [bits(array) for array in own]
        communicator.all_reduce(own)
        communicator.broadcast(own)
        for array in own if shape else ():
            communicator.all_gather(array)
        assert [bits(array) for array in own] == before
    return []


@case
def results_are_new_arrays(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for shape in ((), (4,), (200, 1000)):
        own = values(np.float32, shape, communicator.rank)
        for received in (
            communicator.all_reduce([own, own]),
            communicator.broadcast([own, own]),
            communicator.all_gather(own) if shape else [],
        ):
            kept = [bits(array) for array in received]
            assert not any(np.shares_memory(own, array) for array in received)
            own += 1
            assert [bits(array) for array in received] == kept
            results += [array.copy() for array in received]
            before = bits(own)
            for array in received:
                array[...] = -1  # the caller's own, to write as well; and nobody else's
            assert bits(own) == before
            communicator.barrier()
    return results


@case
def results_that_are_kept_stay(communicator: Communicator) -> Iterable[Array]:
    kept: list[tuple[Array, bytes]] = []
    for number in range(KEPT_CALLS):
        templates = [(np.float32, 5), (np.float64, (40_000 if number % 5 == 0 else 100, 2)), (np.int32, ())]
        received = [
            *check_all_reduce(communicator, templates, seed=number),
            *check_broadcast(communicator, templates, seed=number),
            *check_all_gather(communicator, np.float32, lambda rank: 10 + rank, seed=number),
        ]
        kept += [(array, bits(array)) for array in received]
    for array, then in kept:
        assert bits(array) == then
    return [array for array, _ in kept]


@case
def a_kept_part_of_a_result_stays(communicator: Communicator) -> Iterable[Array]:
    kept: list[tuple[Any, bytes]] = []
    for number in range(12):
        large, small = check_all_reduce(communicator, [(np.float32, (100, 1000)), (np.int64, 3)], seed=number)
        part: Any
        match number % 4:
            case 0:
                part = large[50:, ::7]
            case 1:
                part = small
            case 2:
                part = memoryview(large.reshape(-1))[10:20]
            case _:
                part = large.view(np.uint8).T[3]
        del large, small
        kept.append((part, bits(np.asarray(part))))
    for part, then in kept:
        assert bits(np.asarray(part)) == then
    return []


@case
def results_that_are_dropped_cost_nothing(communicator: Communicator) -> Iterable[Array]:
    for number in range(20):
        check_all_reduce(communicator, [(np.float32, 100_000), (np.float64, 1000)], seed=number)
    return []


# Order.


@case
def long_random_sequence_of_calls(communicator: Communicator) -> Iterable[Array]:
    generator = np.random.default_rng(11)
    results: list[Array] = []
    for number in range(200):
        templates = [
            (
                DTYPES[generator.integers(len(DTYPES))],
                tuple(generator.integers(0, 40, generator.integers(0, 4)).tolist()),
            )
            for _ in range(generator.integers(0, 6))
        ]
        real = [template for template in templates if template[0].kind != "c"]
        rows = generator.integers(0, 5, communicator.size)
        match generator.choice(["sum", "min", "max", "gather", "broadcast", "barrier"]):
            case "sum":
                received = check_all_reduce(communicator, templates, seed=number)
            case "min":
                received = check_all_reduce(communicator, real, Reduction.MIN, seed=number)
            case "max":
                received = check_all_reduce(communicator, real, Reduction.MAX, seed=number)
            case "gather":
                dtype, shape = templates[0] if templates else (DTYPES[0], ())
                received = check_all_gather(
                    communicator, dtype, lambda rank, rows=rows: int(rows[rank]), shape, seed=number
                )
            case "broadcast":
                received = check_broadcast(communicator, templates, seed=number)
            case _:
                communicator.barrier()
                received = []
        if number % 3 == 0:
            results += received
    return results


# Ranks that do different things.


def _tells(
    communicator: Communicator, chief: Callable[[], object], others: Callable[[], object]
) -> Iterable[Array]:
    """All ranks learn that they are in different calls; afterwards the group still works."""
    if communicator.size == 1:
        return []
    try:
        (chief if communicator.rank == 0 else others)()
    except DesynchronizedError:
        pass
    else:
        raise AssertionError("ranks in different calls were not told")
    return check_all_reduce(communicator, [(np.float32, 5)])


@desynchronised
def different_methods(communicator: Communicator) -> Iterable[Array]:
    ones = np.ones(3, np.float32)
    calls: list[Callable[[], object]] = [
        lambda: communicator.all_reduce([ones]),
        lambda: communicator.all_gather(ones),
        lambda: communicator.broadcast([ones]),
        communicator.barrier,
    ]
    results: list[Array] = []
    for first, chief in enumerate(calls):
        for others in calls[first + 1 :]:
            results += _tells(communicator, chief, others)
    return results


@desynchronised
def different_shapes(communicator: Communicator) -> Iterable[Array]:
    def ones(*shape: int) -> Array:
        return np.ones(shape, np.float32)

    several = 3 * ROUND_BYTES // 4
    return [
        *_tells(
            communicator,
            lambda: communicator.all_reduce([ones(2, 3)]),
            lambda: communicator.all_reduce([ones(3, 2)]),
        ),
        *_tells(
            communicator,
            lambda: communicator.all_reduce([ones(several)]),
            lambda: communicator.all_reduce([ones(1)]),
        ),
        *_tells(
            communicator, lambda: communicator.all_reduce([]), lambda: communicator.all_reduce([ones(1)])
        ),
        *_tells(
            communicator,
            lambda: communicator.all_gather(ones(2, 3)),
            lambda: communicator.all_gather(ones(2, 4)),
        ),
        *_tells(
            communicator,
            lambda: communicator.broadcast([ones(2)]),
            lambda: communicator.broadcast([ones(1), ones(1)]),
        ),
    ]


@desynchronised
def different_dtypes(communicator: Communicator) -> Iterable[Array]:
    single, integer = np.ones(4, np.float32), np.ones(4, np.int32)
    return [
        *_tells(
            communicator,
            lambda: communicator.all_reduce([single]),
            lambda: communicator.all_reduce([integer]),
        ),
        *_tells(
            communicator, lambda: communicator.all_gather(single), lambda: communicator.all_gather(integer)
        ),
        *_tells(
            communicator, lambda: communicator.broadcast([single]), lambda: communicator.broadcast([integer])
        ),
    ]


@desynchronised
def different_reductions(communicator: Communicator) -> Iterable[Array]:
    ones = np.ones(4, np.float32)
    return _tells(
        communicator,
        lambda: communicator.all_reduce([ones], Reduction.SUM),
        lambda: communicator.all_reduce([ones], Reduction.MAX),
    )


@desynchronised
def a_rank_that_is_one_call_ahead(communicator: Communicator) -> Iterable[Array]:
    """The chief has forgotten a call: the others' call meets its next one."""
    ones = np.ones(4, np.float32)
    if communicator.size == 1:
        return []
    results = _tells(
        communicator, lambda: communicator.broadcast([ones]), lambda: communicator.all_reduce([ones])
    )
    communicator.barrier()
    return results
