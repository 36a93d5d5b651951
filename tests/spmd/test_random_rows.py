"""Random numbers of own rows: those of plain TensorFlow, and no more of them than a rank has rows for."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tests.spmd.corpus import interpreter
from tests.spmd.rank_threads import Step, assert_as_one_worker, traced

from paceline.spmd.building import Builder, Value
from paceline.spmd.contents import of_numbers, of_sizes
from paceline.spmd.decisions import FIRST_ROW, OWN_ROWS
from paceline.spmd.messages import Alone
from paceline.spmd.partition import Partitioner
from paceline.spmd.placements import R, Spec, new_dims
from paceline.spmd.rules.table import decided
from paceline.spmd.sizes import ROWS, Size

_raw = tf.raw_ops
_REALS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_WHOLE_NUMBERS = (tf.int32, tf.int64)
_UNSIGNED = (tf.uint32, tf.uint64)
_ROWS = np.arange(21.0).reshape(7, 3)


class _Silent(Alone):
    """The second of three ranks, which hears nothing of the others; nobody may gather."""

    acts_outside = False

    def addend(self, whole: Any) -> Any:
        """See `Messages.addend`."""
        return tf.zeros_like(whole)

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `Messages.sum`."""
        return list(addends)

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `Messages.gather`."""
        raise AssertionError(parts)


def _key_and_counter() -> dict[str, Any]:
    """A key, and a counter whose low half overflows with the next rows."""
    counter = np.array([2**64 - 3, 5], np.uint64)
    return {"key": tf.constant([77], tf.uint64), "counter": tf.constant(counter)}


def _inputs(kind: str, dtype: Any) -> dict[str, Any]:
    """What an operation takes besides its shape and algorithm."""
    if kind == "StatelessRandomUniformIntV2":
        return {**_key_and_counter(), "minval": tf.constant(-5, dtype), "maxval": tf.constant(1000, dtype)}
    return {**_key_and_counter(), "dtype": dtype}


_KINDS = [
    *(("StatelessRandomUniformV2", dtype) for dtype in _REALS),
    *(("StatelessRandomNormalV2", dtype) for dtype in _REALS),
    *(("StatelessRandomUniformIntV2", dtype) for dtype in _WHOLE_NUMBERS),
    *(("StatelessRandomUniformFullIntV2", dtype) for dtype in (*_WHOLE_NUMBERS, *_UNSIGNED)),
]


def _by_rule(kind: str, dtype: Any, shape: list[Size], algorithm: int, rank: int, counts: Sequence[int]) -> np.ndarray:
    """What a rank draws of a shape, as the rule for this operation says."""
    given = _inputs(kind, dtype)
    whole = [tf.zeros(len(shape), tf.int32), given.pop("key"), given.pop("counter"), tf.constant(algorithm)]
    whole += [bound for name, bound in given.items() if name != "dtype"]
    output = SimpleNamespace(shape=tf.TensorShape([None] * len(shape)), dtype=dtype)
    op = SimpleNamespace(type=kind, name=kind, inputs=whole, outputs=[output])
    contents = [of_sizes(shape), None, None, of_numbers(algorithm)]
    specs = [Spec(R, new_dims(each.shape.as_list(), kind)) for each in whole]
    specs[: len(contents)] = [replace(spec, content=each) for spec, each in zip(specs, contents, strict=False)]
    decision = decided(op, specs)
    sizes = {ROWS: sum(counts), OWN_ROWS: counts[rank], FIRST_ROW: sum(counts[:rank])}
    builder = Builder(_Silent(), {symbol: tf.constant(number, tf.int64) for symbol, number in sizes.items()})
    inputs = [
        builder.needed(Value(spec, each), need, each)
        for spec, each, need in zip(specs, whole, decision.needs, strict=True)
    ]
    assert decision.outputs[0].shard is not None
    return decision.build(builder, op, inputs)[0].numpy()


@pytest.mark.parametrize(("kind", "dtype"), _KINDS, ids=lambda value: getattr(value, "name", value))
def test_a_rule_draws_what_plain_tensorflow_draws(kind: str, dtype: Any) -> None:
    rows = Size.of(ROWS)
    for block, in_row, algorithm in itertools.product((1, 2), ([1], [3], [7], [3, 7], [rows], [0], []), (1, 3)):
        sizes = [rows * block, *map(Size.of, in_row)]
        for counts in ((2, 0, 3), (1, 4), (0, 1)):
            shape = [size.value(lambda _, counts=counts: sum(counts)) for size in sizes]
            expected = getattr(_raw, kind)(shape=shape, alg=algorithm, **_inputs(kind, dtype)).numpy()
            parts = [_by_rule(kind, dtype, sizes, algorithm, rank, counts) for rank in range(len(counts))]
            assert [len(part) for part in parts] == [count * block for count in counts]
            np.testing.assert_array_equal(np.concatenate(parts), expected, strict=True)


def _of_rows(x: Any) -> list[Any]:
    rows = tf.shape(x)[0]
    given = _key_and_counter()
    drawn = [
        _raw.StatelessRandomNormalV2(shape=[rows, 3], alg=1, **given),
        _raw.StatelessRandomUniformV2(shape=tf.cast([rows * 2, 1], tf.int64), alg=3, dtype=tf.bfloat16, **given),
        _raw.StatelessRandomUniformFullIntV2(shape=[rows, rows], alg=1, dtype=tf.uint64, **given),
        tf.random.stateless_uniform([rows * tf.shape(x)[1]], seed=[1, 2], minval=0, maxval=7, dtype=tf.int32),
    ]
    return [tf.identity(numbers) for numbers in drawn]


def _whole(x: Any) -> list[Any]:
    """What a rank does not draw in part: not of rows, not rows first, of who knows which algorithm, or rejecting."""
    rows = tf.shape(x)[0]
    given = _key_and_counter()
    unknown = tf.cast(tf.reduce_sum(tf.constant([0.25, 0.75])), tf.int32)
    return [
        _raw.StatelessRandomNormalV2(shape=[4, 3], alg=1, **given),
        _raw.StatelessRandomNormalV2(shape=[3, rows], alg=1, **given),
        _raw.StatelessRandomNormalV2(shape=[rows + 1], alg=1, **given),
        _raw.StatelessRandomNormalV2(shape=[], alg=1, **given),
        _raw.StatelessRandomNormalV2(shape=[rows, 3], alg=unknown, **given),
        _raw.StatelessTruncatedNormalV2(shape=[rows, 3], alg=1, **given),
        tf.random.stateless_gamma([rows, 3], seed=[1, 2], alpha=2.0),
        tf.random.stateless_poisson([rows, 3], seed=[1, 2], lam=2.0),
        tf.math.top_k(_raw.StatelessRandomUniformV2(shape=[rows], alg=1, **given), 3)[1],
    ]


@pytest.mark.parametrize("counts", [(2, 0, 5), (0, 1)])
def test_own_rows_together_are_those_of_one_worker(counts: tuple[int, ...]) -> None:
    sent = assert_as_one_worker(lambda: Step(_of_rows), [_ROWS[: sum(counts)]], counts, limit=0.0)
    assert sent == ["gather"], "a rank has only its own rows"


def test_whole_numbers_take_no_message() -> None:
    assert not assert_as_one_worker(lambda: Step(_whole), [_ROWS], (2, 0, 5), limit=0.0)


def _step(*parts: Callable[[], Any], shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[], Step]]:
    """The shape of a row, and what makes the step of `fit`."""

    def build() -> Step:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input(shape), *(part() for part in parts), layers.Flatten(), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.optimizer.build(model.trainable_variables)
        return Step(lambda *batch: model.train_step(batch), lambda: model.variables)

    return shape, build


STEPS = {
    "dropout": _step(
        lambda: layers.Dense(5), lambda: layers.Dropout(0.3), lambda: layers.AlphaDropout(0.2), shape=(6,)
    ),
    "noise": _step(lambda: layers.GaussianNoise(0.3), lambda: layers.GaussianDropout(0.3), shape=(5, 3)),
    "whole channels": _step(lambda: layers.SpatialDropout1D(0.5), lambda: layers.LSTM(3, dropout=0.2), shape=(5, 3)),
    "augmentation": _step(
        lambda: layers.RandomRotation(0.2), lambda: layers.RandomFlip(), lambda: layers.RandomZoom(0.2), shape=(6, 6, 3)
    ),
}


def _numbers_drawn(graph: Any, arguments: Sequence[Any]) -> list[int]:
    """How many numbers each random operation makes when the graph runs."""
    drawn = []

    def observe(where: str, operation: Any, inputs: Sequence[Any], result: Callable[[], Any]) -> Any:
        del where, inputs
        outputs = result()
        if operation.type.startswith("StatelessRandom") and "GetKeyCounter" not in operation.type:
            drawn.append(int(tf.size(outputs[0])))
        return outputs

    interpreter.run(graph, arguments, observe)
    return drawn


@pytest.mark.parametrize("name", STEPS)
def test_a_step_draws_for_its_own_rows_only(name: str) -> None:
    shape, make = STEPS[name]
    rng = np.random.default_rng(0)
    batch = [rng.random((70, *shape), np.float32), rng.integers(0, 3, 70)]
    step = make()
    one = traced(step, batch)
    own = Partitioner(_Silent()).divided(one, [True, True]).get_concrete_function()
    whole = _numbers_drawn(one.graph, [*map(tf.constant, batch), *one.captured_inputs])
    first = [tf.constant(70, tf.int64), tf.constant(11, tf.int64)]
    mine = _numbers_drawn(own.graph, [*first, *(tf.constant(part[11:31]) for part in batch), *own.captured_inputs])
    assert whole
    assert len(mine) == len(whole)
    for few, many in zip(sorted(mine), sorted(whole), strict=True):
        assert few <= many * 20 // 70 + 3, "what is before the first row in a block of four is drawn, too"


@pytest.mark.parametrize("name", STEPS)
def test_a_step_with_random_numbers_sends_one_message(name: str) -> None:
    shape, make = STEPS[name]
    rng = np.random.default_rng(0)
    batch = [rng.random((7, *shape), np.float32), rng.integers(0, 3, 7)]
    assert assert_as_one_worker(make, batch, (2, 5, 0), limit=1e-5) == ["sum"]
