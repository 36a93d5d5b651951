"""Shares by the number of a batch: all ranks agree on each, however far they read ahead; and data are cut by them."""

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import paceline.data
from paceline.data.own_rows.local_batches import divided, local_batches
from paceline.data.own_rows.share_table import ShareTable

CHANGES = [(0, (1, 1, 1)), (3, (3, 1, 2)), (5, (0, 1, 1)), (6, (1, 9, 0)), (9, (2, 1, 1))]
NUM_ROWS, BATCH = 93, 7


def tables() -> list[ShareTable]:
    made = [ShareTable(rank, 3) for rank in range(3)]
    for table in made:
        table.go_on(CHANGES, 0)
    return made


def rows() -> Any:
    return tf.data.Dataset.range(NUM_ROWS)


KINDS: dict[str, Callable[[], Any]] = {
    "whole": lambda: rows().batch(BATCH),
    "components": lambda: rows().map(lambda row: {"a": row, "b": tf.stack([row, -row])}).batch(BATCH),
    "of one size": lambda: rows().batch(BATCH, drop_remainder=True),
    "ragged": lambda: rows().map(lambda row: tf.range(row % 4)).ragged_batch(BATCH),
    "maps before": lambda: rows().map(lambda row: row * row).batch(BATCH),
    "maps before, shuffled behind": lambda: rows().map(lambda row: row * row).batch(BATCH).shuffle(5, seed=3),
    "maps behind": lambda: rows().batch(BATCH).map(lambda row: row * row).prefetch(2),
    "parallel": lambda: rows().map(lambda row: row * row, num_parallel_calls=3).prefetch(9).batch(BATCH).repeat(2),
    "by index": lambda: paceline.data.rows(np.arange(NUM_ROWS), BATCH, shuffle=True, seed=2),
    "by index, mapped": lambda: paceline.data.rows(np.arange(NUM_ROWS), BATCH).map(lambda row: row * 2),
}


def _listed(leaf: Any) -> list[Any]:
    found: list[Any] = leaf.to_list() if isinstance(leaf, tf.RaggedTensor) else leaf.numpy().tolist()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_all_ranks_are_the_batch(kind: str) -> None:
    tf.random.set_seed(1)
    parts = [list(local_batches(KINDS[kind](), rank, 3, table=table)) for rank, table in enumerate(tables())]
    tf.random.set_seed(1)
    whole = list(KINDS[kind]())
    assert len({len(part) for part in parts} | {len(whole)}) == 1
    for number, (batch, own) in enumerate(zip(whole, zip(*parts, strict=True), strict=True)):
        for leaf, leaves in zip(tf.nest.flatten(batch), zip(*map(tf.nest.flatten, own), strict=True), strict=True):
            lists, listed = [_listed(one) for one in leaves], _listed(leaf)
            assert [row for part in lists for row in part] == listed
            shares = next(shares for first, shares in reversed(CHANGES) if first <= number)
            counts, total = [*map(len, lists)], len(listed)
            assert np.cumsum(counts).tolist() == [total * sum(shares[: 1 + rank]) // sum(shares) for rank in range(3)]


def test_maps_that_were_traced_for_one_size_do_not_follow() -> None:
    fixed = rows().batch(BATCH, drop_remainder=True).map(lambda row: row + 1)
    assert not divided(fixed).follows_table
    assert divided(rows().batch(BATCH).map(lambda row: row + 1)).follows_table


def test_a_reader_waits_at_the_bound_until_the_message_is_over() -> None:
    table = ShareTable(0, 2)
    table.begin((1, 1))
    bound = table.bound()
    read: list[Any] = []
    reader = threading.Thread(target=lambda: read.extend(table.shares_of(number) for number in range(bound + 2)))
    reader.start()
    while len(read) < bound:
        assert reader.is_alive()
    table.change(bound, (3, 1))
    assert len(read) == bound
    table.release()
    reader.join(20)
    assert read == [(1, 1)] * bound + [(3, 1)] * 2


@pytest.mark.parametrize("seed", range(20))
def test_all_ranks_agree_on_each_batch_however_far_they_read(seed: int) -> None:
    """Ranks read ahead before, and as far as they may during, the message of each step."""
    draws = random.Random(seed)
    size, ranks = 4, [ShareTable(rank, 4) for rank in range(4)]
    taken: list[list[Any]] = [[] for _ in ranks]
    for table in ranks:
        table.begin((1,) * size)

    def read(rank: int, end: int) -> None:
        while len(taken[rank]) < end:
            taken[rank].append(ranks[rank].shares_of(len(taken[rank])))

    for step in range(60):
        for rank in range(size):
            read(rank, step + 1 + draws.choice([0, 0, 2, 9]))
        bounds = [table.bound() for table in ranks]
        for rank, bound in enumerate(bounds):
            read(rank, draws.choice([len(taken[rank]), bound]))
        if draws.random() < 0.3:
            shares = tuple(draws.randrange(1, 5) for _ in ranks)
            for table in ranks:
                table.change(max(bounds), shares)
        for table in ranks:
            table.release()
        if draws.random() < 0.05:  # a snapshot: another process goes on
            for rank, table in enumerate(ranks):
                position = table.position
                ranks[rank] = ShareTable(rank, size)
                ranks[rank].go_on(*position)
    shortest = min(map(len, taken))
    assert all(len({each[number] for each in taken}) == 1 for number in range(shortest))
    assert len({*taken[0]}) > 3
