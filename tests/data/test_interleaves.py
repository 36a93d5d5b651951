"""An interleave whose cycle length is left out has the order of a process with all cores of the host."""

import os
from typing import Any

import pytest
import tensorflow as tf

from paceline.data.order import stage_orders


def _rows(**options: Any) -> list[int]:
    files = tf.data.Dataset.range(30)
    rows = files.interleave(lambda file: tf.data.Dataset.range(100 * file, 100 * file + 3), **options)
    return [int(row) for row in rows]


@pytest.mark.parametrize("options", [{}, {"num_parallel_calls": 1}, {"num_parallel_calls": tf.data.AUTOTUNE}])
def test_a_bound_worker_reads_as_one_that_is_not(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    own, all_cores = os.sched_getaffinity(0), _rows(**options)
    # TensorFlow has counted the cores of this process, and counts them no more: so the rule is compared with it.
    length = stage_orders.cycle_length_of(len(own), options.get("num_parallel_calls"))
    assert _rows(cycle_length=length, **options) == all_cores

    monkeypatch.setattr(stage_orders._Host, "num_cores", 9)
    monkeypatch.setattr(tf.data.Dataset, "interleave", stage_orders.as_unbound(tf.data.Dataset.interleave))
    of_nine = {None: 9, 1: 1, tf.data.AUTOTUNE: 3}[options.get("num_parallel_calls")]
    in_cycles = _rows(cycle_length=of_nine, **options)
    assert _rows(**options) == in_cycles
    assert _rows(cycle_length=tf.data.AUTOTUNE, **options) == in_cycles
    assert _rows(cycle_length=2) != in_cycles
