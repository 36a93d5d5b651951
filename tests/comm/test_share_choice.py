"""Which shares are chosen by what clocks say: simulated workers, of which some are slow, and all are noisy."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.comm.share_choice import ShareChoice, equal_times
from paceline.comm.step_clock import NUM_NUMBERS, NUM_STEPS, Phase

ROWS_EACH = 64
READ_AHEAD = 8
"""Steps until new shares hold."""


class Workers:
    """A job whose workers compute `fixed` of the usual time of a step, and the rest in proportion to their rows."""

    def __init__(self, speeds: Sequence[float], fixed: float = 0.1, noise: float = 0.0, seed: int = 0) -> None:
        self._speeds, self._fixed, self._noise = np.array(speeds, float), fixed, noise
        self._random = np.random.default_rng(seed)
        self.batch = ROWS_EACH * len(speeds)
        self.rows = [ROWS_EACH] * len(speeds)
        self.changes: list[tuple[int, ...]] = []
        self._choice = ShareChoice(len(speeds))
        self._told = np.zeros((len(speeds), NUM_NUMBERS), np.int64)
        self._coming: list[tuple[int, tuple[int, ...]]] = []
        self._num_steps = 0

    def times(self, rows: Sequence[float] | None = None) -> np.ndarray:
        own = np.array(self.rows if rows is None else rows) / ROWS_EACH
        return (self._fixed + (1 - self._fixed) * own) / self._speeds

    def take(self, num_steps: int, last_rows: int | None = None) -> None:
        """Makes steps; with `last_rows`, every eighth batch is a smaller one."""
        for _ in range(num_steps):
            while self._coming and self._coming[0][0] <= self._num_steps:
                self.rows = [*self._coming.pop(0)[1]]
            is_small = last_rows is not None and self._num_steps % 8 == 7
            rows = [own * (last_rows or 0) // self.batch for own in self.rows] if is_small else self.rows
            if shares := self._choice.hear(0, self._told, rows):
                assert sum(shares) == self.batch
                assert min(shares) > 0
                self.changes.append(shares)
                self._coming.append((self._num_steps + READ_AHEAD, shares))
            times = self.times(rows) * self._random.lognormal(0.0, self._noise, len(rows))
            self._told = np.zeros_like(self._told)
            self._told[:, NUM_STEPS] = 1
            self._told[:, Phase.START] = 10**9 if self._num_steps == 0 else 0  # it is traced
            self._told[:, Phase.COMPUTE] = times * 1e7
            self._told[:, Phase.MESSAGES] = (times.max() - times + 0.1) * 1e7
            self._num_steps += 1

    @property
    def ratio(self) -> float:
        """How many times as long a step takes as with the best shares of all."""
        low, high = 0.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            rows = (middle * self._speeds - self._fixed) / (1 - self._fixed) * ROWS_EACH
            low, high = (low, middle) if np.maximum(rows, 0).sum() >= self.batch else (middle, high)
        return float(self.times().max() / high)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("fixed", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("speeds", [(1, 0.5), (0.5, 1), (1, 0.33), (1, 1, 0.5, 1), (1,) * 7 + (0.5,)])
def test_slow_workers_have_the_best_shares_within_a_hundred_steps(
    speeds: tuple[float, ...], fixed: float, noise: float
) -> None:
    for seed in range(3):
        workers = Workers(speeds, fixed, noise, seed)
        before = workers.times().max()
        workers.take(100)
        assert workers.ratio <= 1.1
        assert workers.times().max() < before / (1.2 if 0.5 in speeds else 1.4)
        workers.take(200)
        assert workers.ratio <= 1.08


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("size", [2, 4, 8, 32])
def test_equal_workers_keep_their_shares(size: int, noise: float) -> None:
    """For long: by chance one of two noisy workers is slower in some steps, and in the steps behind them, too."""
    changes = 0
    for seed in range(3):
        workers = Workers((1.0,) * size, 0.1, noise, seed)
        workers.take(500)
        changes += len(workers.changes)
        assert workers.ratio <= 1.1
    assert changes <= (0 if noise < 0.3 else 20)


def test_a_worker_that_becomes_slow_gets_fewer_rows_and_later_more_again() -> None:
    workers = Workers((1, 1, 1))
    workers.take(50)
    assert not workers.changes
    workers._speeds[1] = 0.5
    workers.take(100)
    assert workers.rows[1] < 0.7 * workers.rows[0]
    workers._speeds[1] = 1.0
    workers.take(150)
    assert workers.rows[1] > 0.9 * workers.rows[0]


def test_one_long_step_changes_nothing() -> None:
    workers = Workers((1, 1))
    workers.take(25)
    workers._speeds[1] = 0.01
    workers.take(1)
    workers._speeds[1] = 1.0
    workers.take(100)
    assert not workers.changes


@pytest.mark.parametrize("last_rows", [1, 40])
def test_smaller_batches_say_nothing(last_rows: int) -> None:
    workers = Workers((1, 0.5))
    workers.take(150, last_rows)
    assert workers.ratio <= 1.1


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(1.0, 1e9)), min_size=1, max_size=9))
@settings(max_examples=200)
def test_all_rows_are_shared_out_and_everybody_has_one(workers: list[tuple[int, float]]) -> None:
    rows, times = zip(*workers, strict=True)
    found = equal_times(rows, times)
    assert sum(found) == sum(rows)
    assert min(found) >= 1


@given(st.lists(st.tuples(st.integers(1, 7), st.floats(1.0, 1e3)), min_size=1, max_size=3))
def test_no_other_rows_would_make_a_step_shorter(workers: list[tuple[int, float]]) -> None:
    rows, times = zip(*workers, strict=True)

    def longest(of_each: Sequence[int]) -> float:
        return max(found * time / own for found, own, time in zip(of_each, rows, times, strict=True))

    others = itertools.product(range(1, sum(rows) + 1), repeat=len(rows))
    assert longest(equal_times(rows, times)) <= (1 + 1e-12) * min(
        longest(one) for one in others if sum(one) == sum(rows)
    )
