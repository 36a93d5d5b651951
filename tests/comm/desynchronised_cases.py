"""Ranks that do different things: for implementations that can tell."""

from collections.abc import Callable, Iterable

import numpy as np
from contract_checks import ROUND_BYTES, Cases, check_all_reduce

from paceline.comm.communicator import Array, Communicator, Reduction
from paceline.errors import DesynchronizedError

CASES = Cases()


def _tells(communicator: Communicator, chief: Callable[[], object], others: Callable[[], object]) -> Iterable[Array]:
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


@CASES.add
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


@CASES.add
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
        *_tells(communicator, lambda: communicator.all_reduce([]), lambda: communicator.all_reduce([ones(1)])),
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


@CASES.add
def different_dtypes(communicator: Communicator) -> Iterable[Array]:
    single, integer = np.ones(4, np.float32), np.ones(4, np.int32)
    return [
        *_tells(
            communicator,
            lambda: communicator.all_reduce([single]),
            lambda: communicator.all_reduce([integer]),
        ),
        *_tells(communicator, lambda: communicator.all_gather(single), lambda: communicator.all_gather(integer)),
        *_tells(communicator, lambda: communicator.broadcast([single]), lambda: communicator.broadcast([integer])),
    ]


@CASES.add
def different_reductions(communicator: Communicator) -> Iterable[Array]:
    ones = np.ones(4, np.float32)
    return _tells(
        communicator,
        lambda: communicator.all_reduce([ones], Reduction.SUM),
        lambda: communicator.all_reduce([ones], Reduction.MAX),
    )


@CASES.add
def a_rank_that_is_one_call_ahead(communicator: Communicator) -> Iterable[Array]:
    """The chief has forgotten a call: the others' call meets its next one."""
    ones = np.ones(4, np.float32)
    if communicator.size == 1:
        return []
    results = _tells(communicator, lambda: communicator.broadcast([ones]), lambda: communicator.all_reduce([ones]))
    communicator.barrier()
    return results
