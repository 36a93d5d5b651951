"""Tables on parameter servers: divided by rows, updated row by row, and to users what they are in one process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worlds import Worlds

CASES = Path(__file__).with_name("table_cases.py")
PLAIN = Path(__file__).with_name("plain_tables.py")

FEW = "adagrad decay ema accumulation_clipped adam lamb"
"""Optimizers that go every way: rows, shards, whole variables, with and without conditionals."""

ALL = (
    "sgd momentum clipnorm global_clipnorm clipvalue decay ema accumulation accumulation_clipped schedule adagrad adam "
    "rmsprop adadelta nadam ftrl lion lamb adafactor"
)


@pytest.mark.processes
@pytest.mark.parametrize(("num_shards", "kinds"), [pytest.param(1, "sgd momentum", marks=pytest.mark.proof), (2, FEW)])
def test_a_table_trains_as_in_one_process(worlds: Worlds, num_shards: int, kinds: str) -> None:
    differences = worlds.with_servers.run(CASES, "differences", kinds, str(num_shards)).same
    assert differences.keys() == {*kinds.split()}
    assert max(differences.values()) < 1e-12, differences


@pytest.mark.proof
@pytest.mark.processes
@pytest.mark.parametrize("num_shards", [1, 2, 3])
def test_every_optimizer_trains_a_table_as_in_one_process(worlds: Worlds, num_shards: int) -> None:
    for kind in ALL.split():
        differences = worlds.with_servers.run(CASES, "differences", kind, str(num_shards)).same
        assert differences[kind] < 1e-12, (kind, differences)


@pytest.mark.processes
def test_optimizers_that_leave_other_rows_alone_update_rows(worlds: Worlds) -> None:
    told = worlds.with_servers.run(CASES, "ways", "sgd clipnorm adagrad adam").same
    small = 3  # iterations and learning rate
    assert {kind: (adds_rows, num_reads <= small) for kind, (adds_rows, num_reads) in told.items()} == {
        "sgd": (True, True),
        "clipnorm": (True, True),
        "adagrad": (True, True),
        "adam": (False, False),
    }


@pytest.mark.processes
def test_a_large_table_whose_rows_are_all_updated_is_warned_of_once(worlds: Worlds) -> None:
    of_momentum, of_sgd = worlds.with_servers.run(CASES, "warnings_of_a_large_table").same
    [message] = of_momentum
    assert "embeddings (102 MB), because SGD with these settings also changes the rows that no step looks up" in message
    assert "lazy_rows=True" in message
    assert of_sgd == []


@pytest.mark.processes
def test_models_of_every_kind(worlds: Worlds) -> None:
    told = worlds.with_servers.run(CASES, "kinds_of_models").same
    for difference, _ in told.values():
        assert difference < 1e-12, told
    # Subclassed: the table, the layer's own weight and a kernel of 5 rows in three shards each, a bias in one.
    assert told["Subclassed"][1] == [10, 4, 61]


@pytest.mark.processes
@pytest.mark.parametrize("numbers", [(3,), pytest.param((1, 2, 3), marks=pytest.mark.proof)])
def test_one_file_for_plain_keras_and_any_number_of_servers(
    worlds: Worlds, tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    path = tmp_path / "model.keras"
    saved = worlds.with_servers.run(CASES, "saved", path).same
    paths, loaded, expected = worlds.plain.run(PLAIN, "continued", path).same
    assert paths[0] == "embedding/embeddings"
    assert loaded == saved
    for num_servers in numbers:
        found, trained = worlds.with_servers.run(CASES, "continued", path, str(num_servers)).same
        assert found == saved
        assert _difference(trained, expected) < 1e-12


@pytest.mark.processes
def test_a_frozen_table_stays_as_it_is(worlds: Worlds) -> None:
    """Shards stayed trainable when their layer was frozen, and the optimizer was given a table that it did not know."""
    table, kernel, counts = worlds.with_servers.run(CASES, "frozen").same
    assert (table, kernel > 0.0) == (0.0, True)
    assert counts == [[4, 1], [5, 0]]


@pytest.mark.processes
@pytest.mark.parametrize("num_servers", [1, pytest.param(3, marks=pytest.mark.proof)])
def test_a_snapshot_has_whole_tables(worlds: Worlds, tmp_path: Path, num_servers: int) -> None:
    before, after = worlds.with_servers.run(CASES, "snapshot", str(num_servers), tmp_path / "state").same
    assert after == before


@pytest.mark.processes
def test_two_workers_that_add_to_one_row_lose_nothing(worlds: Worlds) -> None:
    rows, iterations = worlds.with_servers.run(CASES, "concurrent_additions", "300").same
    assert iterations == 300
    expected = [0.0] * len(rows)
    for row in (0, 1, 5, 6, 10, 10):
        expected[row] += 300.0
    assert rows == [[count] for count in expected]


@pytest.mark.processes
def test_lazy_rows_change_only_what_was_looked_up(worlds: Worlds) -> None:
    named, moved, difference, num_in_both = worlds.with_servers.run(CASES, "lazy_adam").same
    assert moved == named
    assert num_in_both > 0
    assert difference < 1e-12


@pytest.mark.processes
def test_weights_of_fewer_rows_than_shards_get_a_shard_for_each_row(worlds: Worlds) -> None:
    """Other weights than tables; of a table this is refused."""
    worlds.with_servers.run(CASES, "fewer_rows_than_shards")


@pytest.mark.processes
def test_mixed_precision_and_a_scaled_loss(worlds: Worlds) -> None:
    rows_dtype, table_dtype, losses = worlds.with_servers.run(CASES, "mixed_precision").same
    assert (rows_dtype, table_dtype) == ("float16", "float32")
    assert losses[-1] < 0.2 * losses[0]


def _difference(ones: Any, others: Any) -> float:
    return max(float(np.abs(np.array(one) - np.array(other)).max()) for one, other in zip(ones, others, strict=True))
