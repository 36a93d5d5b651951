"""Updates as loops: the bits of the graph's operations, for any optimizer, and for graphs that no optimizer has."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.spmd.rank_threads import NotedMessages, Step
from tests.strategy.thread_worlds import on_each_rank

from paceline.spmd.loops import STEPS
from paceline.spmd.partition import Partitioner
from paceline.strategy.fused_updates import FusedUpdateCalls
from paceline.strategy.loop_compiler import compiled

pytest.importorskip("llvmlite", reason="paceline[cpu] brings llvmlite, which compiles the loops")


@pytest.fixture(autouse=True, scope="module")
def as_written() -> Iterator[None]:
    """TensorFlow's graph optimiser puts other operations in the place of some (`x / sqrt(y)`), with other bits."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def _rank_of_one(updates: FusedUpdateCalls | None, step: Callable[..., Any], specs: Sequence[Any]) -> Any:
    """The step, divided over one rank."""
    traced = tf.function(step, autograph=False).get_concrete_function(*specs)
    [messages] = on_each_rank(1, NotedMessages)
    return Partitioner(messages, updates).divided(traced, [False] * len(specs)).get_concrete_function()


def _num_calls(function: Any) -> int:
    graphs = [function.graph, *function.graph._functions.values()]
    return sum(op.type == "PyFunc" for graph in graphs for op in getattr(graph, "graph", graph).get_operations())


def _run(function: Any, *data: Any) -> list[Any]:
    none = tf.constant(0, tf.int64)
    return tf.nest.flatten(function(none, none, *map(tf.constant, data)))


def assert_same_bits(one: np.ndarray, other: np.ndarray, what: object) -> None:
    """Equal bit by bit, but what is no number may be so in any way."""
    assert one.dtype == other.dtype
    if one.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other), str(what))
        one, other = np.nan_to_num(one, nan=0.0), np.nan_to_num(other, nan=0.0)
    assert one.tobytes() == other.tobytes(), what


# Optimizers

_SHAPES = ((64, 33), (33,), (3, 3, 4, 8), (), (2, 1))
_SOME_OPTIONS: dict[str, dict[str, Any]] = {
    "clipnorm": {"clipnorm": 0.5},
    "global_clipnorm": {"global_clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.01},
    "weight_decay": {"weight_decay": 0.1},
    "use_ema": {"use_ema": True, "ema_overwrite_frequency": 3},
    "gradient_accumulation_steps": {"gradient_accumulation_steps": 2},
    "loss_scale_factor": {"loss_scale_factor": 8.0},
    "schedule": {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Adam": {"amsgrad": True},
    "Ftrl": {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.01, "beta": 0.1},
}
_CLASSES = sorted(
    name
    for name, one in vars(keras.optimizers).items()
    if isinstance(one, type)
    and issubclass(one, keras.optimizers.Optimizer)
    and name not in ("Optimizer", "MultiOptimizer")  # which are others' parts, and several others
)


class _Newton(keras.optimizers.Optimizer):
    """A user's own: of three kinds of slots, with a decision for each entry."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.01, name="users")

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        self._last = [self.add_variable_from_reference(one, "last") for one in variables]
        self._rate = [self.add_variable_from_reference(one, "rate", initializer="ones") for one in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        last, rate = self._last[index], self._rate[index]
        agree = tf.greater(gradient * last, 0.0)
        self.assign(rate, tf.minimum(tf.maximum(tf.where(agree, rate * 1.2, rate * 0.5), 1e-3), 50.0))
        self.assign_sub(variable, tf.sign(gradient) * rate * tf.cast(learning_rate, variable.dtype))
        self.assign(last, gradient)


class _Normed(_Newton):
    """A user's own, whose weights have a norm: it is computed of what the update has made, and changes that again."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(gradient, variable, learning_rate)
        self.assign(variable, variable / (1.0 + tf.norm(variable)))


class _Sparse(_Newton):
    """A user's own, which also writes into its slots in a way that no loop knows."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(gradient, variable, learning_rate)
        last = self._last[self._get_variable_index(variable)]
        if last.shape.rank:
            last.value.scatter_update(tf.IndexedSlices(last[:1] * 3.0, tf.constant([0])))


def _optimizers() -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {name: getattr(keras.optimizers, name) for name in _CLASSES}
    made["LossScaleOptimizer"] = lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(), dynamic_growth_steps=3
    )
    for option, values in _SOME_OPTIONS.items():
        own = option if option in _CLASSES else "AdamW" if option == "schedule" else "Adam"
        made[f"{own} {values}"] = lambda own=own, values=values: getattr(keras.optimizers, own)(**values)
    made.update({one.__name__: one for one in (_Newton, _Normed, _Sparse)})
    return made


def _trained(
    make: Callable[[], Any], updates: FusedUpdateCalls | None, dtype: str, shapes: Sequence[tuple[int, ...]] = _SHAPES
) -> tuple[list[np.ndarray], int]:
    random = np.random.default_rng(0)
    weights = [keras.Variable(random.normal(size=shape).astype(dtype)) for shape in shapes]
    optimizer = make()
    optimizer.build(weights)
    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    function = _rank_of_one(updates, lambda *gradients: optimizer.apply(list(gradients), weights), specs)
    for turn in range(10):
        scale = np.inf if turn == 4 and isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else 0.01
        _run(function, *(random.normal(size=shape).astype(dtype) * np.array(scale, dtype) for shape in shapes))
    return [np.array(one.numpy()) for one in [*weights, *optimizer.variables]], _num_calls(function)


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in _optimizers()), ("Adam", "float64"), ("_Normed", "float64")]
)
def test_an_optimizer_has_the_bits_of_its_operations(name: str, dtype: str) -> None:
    make = _optimizers()[name]
    alone, _ = _trained(make, None, dtype)
    fused, num_calls = _trained(make, FusedUpdateCalls(least_entries=1), dtype)
    for index, (one, other) in enumerate(zip(alone, fused, strict=True)):
        assert_same_bits(one, other, index)
    assert num_calls > 0, "nothing was fused: this test would prove nothing"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_weights_too(dtype: str) -> None:
    """Several threads share them, and new values go past the caches."""
    shapes = [(700, 401), (300_007,), (1, 33)]
    alone, _ = _trained(keras.optimizers.Adam, None, dtype, shapes)
    fused, _ = _trained(keras.optimizers.Adam, FusedUpdateCalls(least_entries=1000), dtype, shapes)
    for index, (one, other) in enumerate(zip(alone, fused, strict=True)):
        assert_same_bits(one, other, index)


def test_equal_loops_are_compiled_once() -> None:
    before = compiled.cache_info().currsize
    _trained(keras.optimizers.Adam, FusedUpdateCalls(least_entries=1000), "float32", [(70, 41), (3, 7, 211), (5000,)])
    assert compiled.cache_info().currsize <= before + 1


# Graphs that no optimizer has

_WIDTH = 37
_SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 1e38, -1.0, 2.0, 1e-20, 3.0], np.float32)
_LINES = st.one_of(
    st.tuples(st.just("read"), st.integers(0, 2)),
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    st.tuples(st.sampled_from(["assign", "assign_add", "assign_sub"]), st.integers(0, 2), st.integers(0, 99)),
    st.tuples(st.sampled_from(["sum", "number", "return", "identities"]), st.integers(0, 99)),
    st.tuples(st.just("scatter"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["function", "behind"]), st.integers(0, 2), st.integers(0, 99)),
)


def _special(lines: Sequence[tuple[Any, ...]]) -> np.ndarray:
    """The entries of data and variables: of the signs of denormal numbers Eigen makes different ones by their place."""
    if all(what != "Sign" for what, *_ in lines):
        return _SPECIAL
    return _SPECIAL[(_SPECIAL == 0.0) | ~(np.abs(_SPECIAL) < np.finfo(np.float32).tiny)]


@tf.function(autograph=False)
def _assigned_in_function(variable: Any, value: Any) -> list[Any]:
    """Whoever takes a result of this waits for both assignments."""
    variable.assign(variable * value)
    variable.assign(variable / (1.0 + tf.abs(tf.reduce_sum(variable))))
    return [value * 2.0, variable.read_value()]


def _read_behind(variable: Any, value: Any) -> list[Any]:
    with tf.control_dependencies([value]):
        return [variable.read_value()]


_OF_VARIABLES: dict[str, Callable[[Any, Any], list[Any]]] = {
    "function": _assigned_in_function,
    "behind": _read_behind,
}


def _drawn(lines: Sequence[tuple[Any, ...]]) -> Step:
    """Reads, computes and assigns three variables as the lines say, which name what is there by its number."""
    variables = [tf.Variable(np.resize(_special(lines)[index:], _WIDTH)) for index in range(3)]
    outside = tf.Variable(np.float32(1.5))

    def run(x: Any) -> list[Any]:
        vectors, numbers, decisions, returned = [x, x * 2.0], [tf.constant(0.5)], [x > 0.0], []
        for what, *args in lines:
            if what == "read":
                vectors.append(variables[args[0]].read_value())
            elif what in STEPS:
                step = STEPS[what]
                entries = [*vectors, *numbers]
                pools = [decisions if index in step.takes_decisions else entries for index in range(step.num_args)]
                given = [pool[arg % len(pool)] for pool, arg in zip(pools, args, strict=False)]
                made = _operation(what, given)
                if made.shape.rank:
                    (decisions if step.is_decision else vectors).append(made)
            elif what.startswith("assign"):
                getattr(variables[args[0]], what)(vectors[args[1] % len(vectors)])
            elif what in _OF_VARIABLES:
                vectors += _OF_VARIABLES[what](variables[args[0]], vectors[args[1] % len(vectors)])
            elif what == "sum":
                numbers.append(tf.reduce_sum(vectors[args[0] % len(vectors)]))
            elif what == "number":
                outside.assign_add(1.0)
                numbers.append(outside.read_value() * 0.25)
            elif what == "return":
                returned.append(vectors[args[0] % len(vectors)])
            elif what == "identities":
                first, second = vectors[args[0] % len(vectors)], vectors[-1]
                vectors += tf.raw_ops.IdentityN(input=[first, second])
            else:
                rows = tf.IndexedSlices(vectors[-1][:2], tf.constant([3, 5]))
                variables[args[0]].scatter_add(rows)
        return [*returned, tf.stack(numbers)]

    return Step(run, lambda: [*variables, outside])


def _operation(what: str, given: Sequence[Any]) -> Any:
    names = [argument.name for argument in getattr(tf.raw_ops, what).__signature__.parameters.values()]
    if what in ("Select", "SelectV2"):
        given = [given[0], *(tf.broadcast_to(one, given[0].shape) if what == "Select" else one for one in given[1:])]
    return getattr(tf.raw_ops, what)(**dict(zip(names, given, strict=False)))


@settings(deadline=None)
@given(lines=st.lists(_LINES, min_size=3, max_size=25))
@example(lines=[("read", 0), ("Sign", 0, 0, 0), ("assign", 0, 3)])  # of -0.0
@example(  # a decision between values of a later level
    lines=[
        *[("read", 0), ("read", 0), ("identities", 0), ("identities", 0), ("function", 0, 0)],
        *[("read", 0), ("read", 0), ("read", 0), ("SelectV2", 0, 0, 10), ("assign", 0, 13)],
    ]
)
def test_any_graph_has_its_bits(lines: Sequence[tuple[Any, ...]]) -> None:
    found = []
    for updates in (None, FusedUpdateCalls(least_entries=1)):
        step = _drawn(lines)
        function = _rank_of_one(updates, step.function, [tf.TensorSpec([_WIDTH], tf.float32)])
        outputs = [_run(function, np.roll(np.resize(_special(lines), _WIDTH), turn)) for turn in range(2)][-1]
        found.append([*(one.numpy() for one in outputs), *(np.array(one.numpy()) for one in step.variables())])
    for index, (one, other) in enumerate(zip(*found, strict=True)):
        assert_same_bits(one, other, index)


def test_a_variable_may_get_its_first_value() -> None:
    """It was read, although no line needs what it was."""
    weight = tf.Variable(np.arange(50, dtype=np.float32))
    first = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[50], shared_name="first_value_of_a_test")

    def step(x: Any) -> None:
        weight.assign_add(x * 2.0)
        tf.raw_ops.AssignVariableOp(resource=first, value=weight * x)

    function = _rank_of_one(FusedUpdateCalls(least_entries=1), step, [tf.TensorSpec([50], tf.float32)])
    _run(function, np.full(50, 3.0, np.float32))
    value = tf.raw_ops.ReadVariableOp(resource=first, dtype=tf.float32)
    np.testing.assert_array_equal(value, (np.arange(50) + 6.0) * 3.0)
    assert _num_calls(function) == 1


def assert_bits_of_operations(make: Callable[[], Step], *data: np.ndarray) -> int:
    """Two runs with loops and without are equal; returns how many loops ran."""
    found = []
    for updates in (None, FusedUpdateCalls(least_entries=1)):
        step = make()
        function = _rank_of_one(updates, step.function, [tf.TensorSpec(one.shape, one.dtype) for one in data])
        outputs = [_run(function, *data) for _ in range(2)][-1]
        found.append([*(one.numpy() for one in outputs), *(np.array(one.numpy()) for one in step.variables())])
    for index, (one, other) in enumerate(zip(*found, strict=True)):
        assert_same_bits(one, other, index)
    return _num_calls(function)


_EIGHT = np.linspace(-1.0, 2.0, 8)


def test_a_decision_between_other_types_is_not_of_a_loop() -> None:
    def make() -> Step:
        variable = tf.Variable(np.arange(8, dtype=np.float32))
        return Step(lambda x: variable.assign(tf.where(x > 0.0, variable * 2.0, -variable)), lambda: [variable])

    assert_bits_of_operations(make, _EIGHT)


def test_who_reads_a_function_s_result_waits_for_its_assignments() -> None:
    def make() -> Step:
        first, second, third = (tf.Variable(np.arange(8, dtype=np.float64) + number) for number in range(3))

        @tf.function(autograph=False)
        def inner(x: Any) -> Any:
            first.assign(first * x)
            second.assign(second + x * 2.0)
            return first.read_value()

        def step(x: Any) -> Any:
            y = inner(x)
            third.assign(second * y + third)
            first.assign(_assigned_in_function(first, x)[0] * 3.0)
            return y

        return Step(step, lambda: [first, second, third])

    assert assert_bits_of_operations(make, _EIGHT) > 0


def test_a_variable_under_two_names_stays_outside() -> None:
    def make() -> Step:
        variable = tf.Variable(np.arange(8, dtype=np.float64))

        def step(x: Any) -> None:
            other = tf.raw_ops.Identity(input=variable.handle)
            before = tf.raw_ops.ReadVariableOp(resource=other, dtype=tf.float64)
            with tf.control_dependencies([before]):
                between = tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tf.sin(x))
            with tf.control_dependencies([between]):
                tf.raw_ops.AssignVariableOp(resource=other, value=before * 2.0 + x)

        return Step(step, lambda: [variable])

    assert_bits_of_operations(make, _EIGHT)


def test_a_variable_of_two_shapes_stays_outside() -> None:
    def make() -> Step:
        variable = tf.Variable(np.arange(8, dtype=np.float64), shape=[None])

        def step(x: Any) -> None:
            variable.assign(x[:4] * 2.0)
            variable.assign(x * 3.0)

        return Step(step, lambda: [variable])

    assert_bits_of_operations(make, _EIGHT)


def test_a_loop_waits_for_python_that_comes_before_its_vectors() -> None:
    def make() -> Step:
        variable = tf.Variable(np.arange(8, dtype=np.float64))

        def python() -> int:
            variable.assign(variable * 100.0)
            return 0

        def step(x: Any) -> None:
            with tf.control_dependencies([tf.py_function(python, [], tf.int64)]):
                behind = tf.identity(x)
            variable.assign_add(behind * 2.0)

        return Step(step, lambda: [variable])

    assert_bits_of_operations(make, _EIGHT)


def test_norms_behind_many_layers_take_no_time() -> None:
    """Numbers were compared by all that they are computed of: 30 times longer for each layer."""

    def make() -> Step:
        weights = [tf.Variable(np.full((8, 8), 0.1 + number)) for number in range(6)]

        def step(x: Any) -> None:
            y = x
            with tf.GradientTape() as tape:
                for weight in weights:
                    y = y + tf.matmul((y - tf.reduce_mean(y)) / (1.0 + tf.norm(y)), weight)
                loss = tf.reduce_sum(tf.square(y))
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), 1.0)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.assign_sub(gradient * 0.1)

        return Step(step, lambda: weights)

    begin = time.monotonic()
    assert assert_bits_of_operations(make, np.outer(_EIGHT, _EIGHT)) > 0
    assert time.monotonic() - begin < 60.0


# Memory


def test_what_was_read_stays_as_it_was() -> None:
    """A callback's tensor, a slice of one, and an array that shares its memory."""
    variable = tf.Variable(np.arange(5000, dtype=np.float32))
    function = _rank_of_one(
        FusedUpdateCalls(least_entries=1000),
        lambda g: variable.assign_sub(g * 2.0 + variable),
        [tf.TensorSpec([5000], tf.float32)],
    )
    kept = []
    for turn in range(6):
        tensor = variable.read_value()
        kept.append((tensor, tensor[10:20], np.asarray(tensor), variable.numpy().copy()))
        _run(function, np.full(5000, turn + 1.0, np.float32))
    assert _num_calls(function) == 1
    for turn, (tensor, part, shared, copied) in enumerate(kept):
        np.testing.assert_array_equal(tensor.numpy(), copied, str(turn))
        np.testing.assert_array_equal(part.numpy(), copied[10:20], str(turn))
        np.testing.assert_array_equal(shared, copied, str(turn))


def test_memory_does_not_grow_with_the_steps() -> None:
    variable = tf.Variable(np.zeros(5000, np.float32))
    function = _rank_of_one(
        FusedUpdateCalls(least_entries=1000),
        lambda g: variable.assign_sub(g * 2.0),
        [tf.TensorSpec([5000], tf.float32)],
    )
    addresses = set()
    for _ in range(50):
        _run(function, np.ones(5000, np.float32))
        addresses.add(np.asarray(memoryview(variable.read_value())).ctypes.data)
    assert len(addresses) <= 3
