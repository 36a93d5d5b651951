"""The order of the rows of an epoch, as a function of seed, epoch and position: nothing is drawn, kept or replayed.

    position   0 1 2 3 4 5 6 7        epoch 0, of 8 rows
    row        6 0 3 7 1 4 2 5        one network of keyed rounds; a number outside of the rows goes through again

A Feistel network is a permutation whatever its round function is (Luby and Rackoff, 1988). It permutes the numbers
below the next square; whoever lands outside of the rows follows the cycle that it is on until it is inside (Black and
Rogaway, "Ciphers with arbitrary finite domains", 2002).
"""

import functools
from dataclasses import dataclass
from math import isqrt
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Shuffle = bool | Literal["blocks"]
"""None, of rows, or of runs of rows."""

BLOCK_ROWS = 256
"""Rows of a run that `shuffle="blocks"` leaves together."""

_ROUNDS = 6
_POSITIONS_AT_ONCE = 4096
"""An array of so many costs little more than one of a few."""

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """Which row is where in an epoch.

    Args:
        num_rows: Rows of the data.
        shuffle: How their order changes from epoch to epoch; False: it does not.
        seed: Any integer.
    """

    num_rows: int
    shuffle: Shuffle
    seed: int

    def rows(self, epoch: int, begin: int, end: int) -> _Rows:
        """int64 vector: the rows at the positions begin, …, end - 1 of an epoch (from 0)."""
        if not self.shuffle:
            return np.arange(begin, end)
        chunks = range(begin // _POSITIONS_AT_ONCE, -(-end // _POSITIONS_AT_ONCE))
        together = np.concatenate([_chunk(self, epoch, chunk) for chunk in chunks] or [np.arange(0)])
        first = begin // _POSITIONS_AT_ONCE * _POSITIONS_AT_ONCE
        own: _Rows = together[begin - first : end - first]
        return own

    def seeds(self, epoch: int, rows: _Rows) -> _Rows:
        """int64 array of shape [rows, 2]: a seed for each row, another one in each epoch."""
        return np.stack([np.full(len(rows), _keys(self.seed, epoch).of_rows), rows], axis=1)


@dataclass(frozen=True, slots=True)
class _Keys:
    rounds: npt.NDArray[np.uint64]
    offset: float
    """In [0, 1): which row the first block begins with."""
    of_rows: int


@functools.lru_cache(maxsize=16)
def _keys(seed: int, epoch: int) -> _Keys:
    # A `SeedSequence` takes no negative numbers.
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([abs(seed), int(seed < 0), epoch])))
    rounds = generator.integers(0, 1 << 64, _ROUNDS, np.uint64)
    return _Keys(rounds, float(generator.random()), int(generator.integers(0, 1 << 62)))


@functools.lru_cache(maxsize=16)
def _chunk(order: EpochOrder, epoch: int, chunk: int) -> _Rows:
    first = chunk * _POSITIONS_AT_ONCE
    positions = np.arange(first, min(first + _POSITIONS_AT_ONCE, order.num_rows))
    keys = _keys(order.seed, epoch)
    if order.shuffle != "blocks":
        return _permuted(positions, order.num_rows, keys.rounds)
    # A last block of fewer rows stays the last; another row begins the first block in each epoch.
    num_blocks = order.num_rows // BLOCK_ROWS
    blocks, within = np.divmod(positions, BLOCK_ROWS)
    is_whole = blocks < num_blocks
    blocks[is_whole] = _permuted(blocks[is_whole], num_blocks, keys.rounds)
    result: _Rows = (blocks * BLOCK_ROWS + within + int(keys.offset * order.num_rows)) % order.num_rows
    return result


def _permuted(numbers: _Rows, size: int, keys: npt.NDArray[np.uint64]) -> _Rows:
    """Where a permutation of 0, …, size - 1 takes some of them."""
    side = np.uint64(isqrt(max(size - 1, 0)) + 1)
    result = numbers.astype(np.uint64)
    outside = np.arange(len(result))
    while len(outside):
        left, right = np.divmod(result[outside], side)
        for key in keys:
            left, right = right, (left + _mixed(right, key)) % side
        moved = left * side + right
        result[outside] = moved
        outside = outside[moved >= size]
    return result.astype(np.int64)


def _mixed(numbers: Any, key: Any) -> Any:
    """Numbers of 64 bits in which each bit depends on all of those of a number and the key (as in SplitMix64)."""
    numbers = (numbers ^ key) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
