"""Rules that a script gives for operations which have none."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.spmd.rank_threads import Step, assert_as_one_worker

import paceline
from paceline.spmd.rules.rule import REGISTERED
from paceline.spmd.rules.table import RULES

MATRICES = np.random.default_rng(3).normal(size=(7, 4, 4))


@pytest.fixture(autouse=True)
def _no_rules_are_left() -> Iterator[None]:
    yield
    REGISTERED.clear()


def _step() -> Step:
    def function(x: Any) -> Any:
        q, r = tf.linalg.qr(x)
        return tf.reduce_sum(tf.abs(q)), tf.reduce_sum(r * r, 0)

    return Step(function)


def _sent(counts: tuple[int, ...] = (3, 4)) -> list[str]:
    return assert_as_one_worker(_step, [MATRICES], counts)


def test_an_operation_without_a_rule_gets_all_rows_and_with_one_its_own() -> None:
    assert "Qr" not in RULES, "this test needs an operation that has no rule"
    assert "gather" in _sent()
    paceline.register_rule("Qr", "... M N -> ... M K, ... K N")
    assert _sent() == ["sum"]
    assert _sent((7, 0)) == ["sum"]


def test_a_rule_of_a_script_comes_before_the_built_in_one() -> None:
    def make() -> Step:
        return Step(lambda x: tf.reduce_sum(tf.tanh(x), 0))

    assert assert_as_one_worker(make, [MATRICES], (3, 4)) == ["sum"]
    paceline.register_rule("Tanh", "A B C -> A B C")
    assert "gather" in assert_as_one_worker(make, [MATRICES], (3, 4))


@pytest.mark.parametrize(
    ("factors", "linear", "told"),
    [
        ("i k, k j", (), "a rule is 'inputs -> outputs'"),
        ("i k, k j -> i j", ((0,), (2,)), "names input 2, but 'i k, k j -> i j' has 2 inputs"),
    ],
)
def test_what_is_no_rule_is_refused(factors: str, linear: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        paceline.register_rule("Qr", factors, linear=linear)
    assert not REGISTERED


def test_each_rule_is_on_the_page() -> None:
    """docs/rules.md has the rules of the code; `make rules` writes it."""
    import importlib.util
    from pathlib import Path

    docs = Path(__file__).parents[2] / "docs"
    specification = importlib.util.spec_from_file_location("make_rules", docs / "make_rules.py")
    assert specification is not None
    assert specification.loader is not None
    maker = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(maker)

    def without_counts(page: str) -> list[str]:
        return [line.rpartition(" | ")[0] if line.startswith("| `") else line for line in page.splitlines()]

    written = (docs / "rules.md").read_text(encoding="utf-8")
    assert without_counts(written) == without_counts(maker.page({})), "type: make rules"
    assert set(RULES) == {kind for table in maker.TOPICS.values() for kind in table}
