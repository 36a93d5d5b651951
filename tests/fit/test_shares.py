"""What is computed from shares of a loss is recognised in graphs, operation by operation."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from paceline.fit.shares import is_share, mark_as_share

COMPUTED: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "half": (lambda share, _: share / 2.0, True),
    "sum of all entries": (lambda share, _: tf.reduce_sum(share), True),
    "negated sum": (lambda share, _: -(share + share), True),
    "sum with a number of its own": (lambda share, own: share + own, False),
    "product with a number of its own": (lambda share, own: share * own, False),
    "function": (lambda share, _: tf.exp(share), False),
    "share of a group": (lambda share, own: tf.identity_n([own, share])[1], True),
    "number of a group": (lambda share, own: tf.identity_n([share, own])[1], False),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_from_shares_is_one_if_it_commutes_with_a_sum(name: str) -> None:
    compute, expected = COMPUTED[name]
    with tf.Graph().as_default():
        share = mark_as_share(tf.constant(1.0) + tf.random.uniform([]))
        assert is_share(compute(share, tf.random.uniform([]))) is expected
