"""`all_gather`, `broadcast` and `barrier`."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from contract_checks import DTYPES, ROUND_BYTES, Cases, bits, check_all_gather, check_broadcast

from paceline.comm.communicator import Array, Communicator

CASES = Cases()


@CASES.add
def rank_and_size(communicator: Communicator) -> Iterable[Array]:
    assert 0 <= communicator.rank < communicator.size
    everyone = communicator.all_gather(np.array([communicator.rank]))
    assert [part.tolist() for part in everyone] == [[rank] for rank in range(communicator.size)]
    return everyone


@CASES.add
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


@CASES.add
def all_gather_of_every_dtype(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for dtype in DTYPES:
        results += check_all_gather(communicator, dtype, lambda rank: rank + 1)
        results += check_all_gather(communicator, dtype, lambda rank: 3, (2, 3))
    return results


@CASES.add
def all_gather_of_uneven_rows(communicator: Communicator) -> Iterable[Array]:
    results: list[Array] = []
    for rows in (lambda rank: rank, lambda rank: 5 - rank, lambda rank: 3 * (rank % 2), lambda rank: 0):
        results += check_all_gather(communicator, np.float32, rows)
        results += check_all_gather(communicator, np.int64, rows, (2, 3))
        results += check_all_gather(communicator, np.float64, rows, (0,))
    return results


@CASES.add
def all_gather_of_large_arrays(communicator: Communicator) -> Iterable[Array]:
    return [
        *check_all_gather(communicator, np.float32, lambda rank: 150_001 + 1000 * rank, (2,)),
        *check_all_gather(communicator, np.uint8, lambda rank: ROUND_BYTES * (rank % 2) + 1),
    ]


@CASES.add
def broadcast_of_every_dtype(communicator: Communicator) -> Iterable[Array]:
    return check_broadcast(
        communicator, [(dtype, shape) for dtype in DTYPES for shape in ((), (3,), (2, 5), (1, 1, 7))]
    )


@CASES.add
def broadcast_of_large_arrays(communicator: Communicator) -> Iterable[Array]:
    return check_broadcast(communicator, [(np.float32, 400_003), (np.uint8, 3), (np.float64, (300, 401))])


@CASES.add
def broadcast_of_values_that_no_sum_would_give(communicator: Communicator) -> Iterable[Array]:
    pattern = np.array([0x7FC00001, 0x80000000, 0x00000001, 0xFF800000], np.uint32)
    own = pattern if communicator.rank == 0 else np.zeros_like(pattern)
    [received] = communicator.broadcast([own.view(np.float32)])
    assert bits(received) == bits(pattern)
    [gathered, *_] = communicator.all_gather(own.view(np.float32))
    assert bits(gathered) == bits(pattern)
    return [received, gathered]
