"""The training step that Keras itself traces, for a small model around each of its public classes."""

import contextlib
import enum
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .keras_classes import EXCUSED, Make, makers, public_activations, public_classes

ROWS = (5, 7)
"""The sizes of the two batches on which each step is run."""

MODULES = ("optimizers", "optimizers.schedules", "regularizers", "constraints", "losses", "layers", "metrics")


class Extent(enum.Enum):
    """Which steps there are for a class."""

    FIRST = "one"
    INPUTS = "one for each of some kinds of inputs"
    OPTIONS = "these, and one for each option of the class"


@dataclass(frozen=True)
class Field:
    """What one array of a batch holds in each row."""

    shape: tuple[int, ...]
    kind: str = "normal"
    high: int = 3

    def rows(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """So many rows."""
        shape = (count, *self.shape)
        match self.kind:
            case "normal":
                return draw.normal(size=shape)
            case "unit":
                return draw.uniform(0.1, 1.0, size=shape)
            case "bits":
                return draw.integers(0, 2, size=shape).astype("float64")
            case "whole":
                return draw.integers(1, self.high, size=shape)
            case "tokens":
                return np.sort(draw.integers(0, self.high, size=shape), axis=-1)[..., ::-1]
            case "one hot":
                return np.eye(self.shape[-1])[draw.integers(0, self.shape[-1], size=shape[:-1])]
            case "boxes":
                corner, size = draw.uniform(0, 2, size=(*shape[:-1], 2)), draw.uniform(1, 3, size=(*shape[:-1], 2))
                return np.concatenate([corner, corner + size], axis=-1)
            case "words":
                return np.array(["a", "b", "c d"], dtype=object)[draw.integers(0, 3, size=shape)]
        raise ValueError(self.kind)

    @property
    def dtype(self) -> str:
        """The type of its numbers."""
        return {"whole": "int64", "tokens": "int64", "words": "string"}.get(self.kind, keras.config.floatx())

    def symbol(self) -> Any:
        """An input of a functional model."""
        return keras.Input(self.shape, dtype=self.dtype)


@dataclass
class TracedStep:
    """One of Keras's own steps as TensorFlow traced it."""

    name: str
    """The class of Keras that it is about, by its path below `keras`."""
    variant: str
    """Its options and inputs."""
    model: Any = field(repr=False)
    function: Any = field(repr=False)
    """The concrete function; its first inputs are the batch, the others captured variables and constants."""
    fields: list[Field] = field(repr=False)
    fits: bool = True
    """Made false by who finds that it does not run; others are then tried for the class."""

    def batch(self, rows: int) -> list[tf.Tensor]:
        """A batch, in the order of the function's inputs; a smaller one is the beginning of a larger one."""
        draw = np.random.default_rng(3)
        specs = self.function.inputs[: len(self.fields)]
        arrays = [item.rows(max(ROWS), draw)[:rows] for item in self.fields]
        return [tf.constant(array, spec.dtype) for array, spec in zip(arrays, specs, strict=True)]


REFUSALS: dict[str, list[str]] = defaultdict(list)
"""The errors of each class that some arguments or inputs did not fit: what fits is found out by trying."""


@contextlib.contextmanager
def refusal_noted(name: str) -> Iterator[None]:
    """Notes an error."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        if text not in REFUSALS[name]:
            REFUSALS[name].append(text)


def traced_steps(
    wanted: Callable[[str], bool] = lambda name: True, extent: Extent = Extent.OPTIONS
) -> Iterator[TracedStep]:
    """The steps of all public classes whose path is wanted, in float64 where that runs, for batches of any size."""
    public: list[tuple[str, Callable[[Extent], Iterator[TracedStep]]]] = []
    for module in MODULES:
        public += [(name, partial(_FAMILIES[module], name, kind)) for name, kind in public_classes(module)]
    public += [(name, partial(_activation_steps, name, function)) for name, function in public_activations()]
    for name, steps in public:
        if wanted(name) and name not in EXCUSED:
            fits = False
            for numbers in ("float64", "float32"):  # some kernels have no float64
                with _floating(numbers):
                    for step in () if fits else steps(extent):
                        yield step
                        fits |= step.fits


@contextlib.contextmanager
def _floating(dtype: str) -> Iterator[None]:
    """Keras computes in this type meanwhile."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


ROW = Field((8,))
SERIES = Field((6, 4))
IMAGE = Field((6, 6, 3), "unit")
VOLUME = Field((4, 6, 6, 3))
TOKENS = Field((6,), "tokens", 11)

_LAYER_INPUTS: dict[str, Any] = {
    "series": SERIES,
    "image": IMAGE,
    "row": ROW,
    "masked": TOKENS,
    "volume": VOLUME,
    "wide": Field((4, 32)),
    "film": Field((2, 4, 4, 4, 2)),
    "tokens": TOKENS,
    "word": Field((1,), "words"),
    "pair": [SERIES, SERIES],
    "rows": [ROW, ROW],
    "numbers": [Field((1,), "whole", 9), Field((1,), "whole", 9)],
    "mixed": {"images": IMAGE, "labels": Field((3,), "one hot")},
    "boxes": {"images": IMAGE, "bounding_boxes": {"boxes": Field((2, 4), "boxes"), "labels": Field((2,), "whole")}},
}


def _inputs(extent: Extent) -> int:
    """So many of the inputs that fit are taken for a layer, loss or metric as it is; an option takes one."""
    return 1 if extent is Extent.FIRST else 3


def _layer_steps(name: str, kind: type, extent: Extent) -> Iterator[TracedStep]:
    for option, make in makers(kind, extent is Extent.OPTIONS):
        taken = 0
        for label, fields in _LAYER_INPUTS.items():
            if taken < (1 if option or isinstance(fields, dict) else _inputs(extent)):
                with refusal_noted(name):
                    step = _layer_step(name, f"{option} {label}".strip(), make, fields, masked=label == "masked")
                    yield step
                    taken += step.fits


def _layer_step(name: str, variant: str, make: Make, fields: Any, masked: bool) -> TracedStep:
    layer = make()
    if hasattr(layer, "state_size") and hasattr(layer, "output_size"):
        layer = keras.layers.RNN(layer)
    if masked and "mask" not in inspect.signature(layer.call).parameters:
        raise ValueError("takes no mask")
    symbols = tf.nest.map_structure(Field.symbol, fields)
    inputs = keras.layers.Embedding(11, 4, mask_zero=True)(symbols) if masked else tf.nest.map_structure(_led, symbols)
    several = isinstance(inputs, list) and len(_needed_of_call(layer)) > 1
    outputs = layer(*inputs) if several else layer(inputs)
    model = keras.Model(symbols, [_head(output) for output in tf.nest.flatten(outputs)])
    return _traced(name, variant, model, fields, _targets(model, fields), loss="mse")


def _targets(model: Any, fields: Any) -> Any:
    """What is like the model's outputs while it trains."""
    given = tf.nest.map_structure(lambda item: item.rows(max(ROWS), np.random.default_rng(0)), fields)
    outputs = tf.nest.flatten(model(given, training=True))
    if any(output.shape[:1] != (max(ROWS),) for output in outputs):
        raise ValueError("its outputs are not rows")
    targets = [Field(tuple(output.shape[1:])) for output in outputs]
    return targets if len(targets) > 1 else targets[0]


def _led(symbol: Any) -> Any:
    """Floating numbers come through a trained layer, so that gradients go through what follows."""
    if symbol.dtype != keras.config.floatx():
        return symbol
    return keras.layers.Dense(symbol.shape[-1])(symbol)


def _head(output: Any) -> Any:
    if output.shape[-1] is None or len(output.shape) < 2:
        return output
    return keras.layers.Dense(2)(output)


def _needed_of_call(layer: Any) -> list[str]:
    parameters = inspect.signature(layer.call).parameters.values()
    return [item.name for item in parameters if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD]


_WEIGHT = Field((), "unit")

_PREDICTIONS: dict[str, tuple[Field, tuple[Any, ...], Field, Field | None]] = {
    "classes": (ROW, (3, "softmax"), Field((3,), "one hot"), _WEIGHT),
    "one": (ROW, (1, "sigmoid"), Field((1,), "bits"), None),
    "index": (ROW, (3, "softmax"), Field((1,), "whole"), _WEIGHT),
    "series": (SERIES, (3, "softmax"), Field((6, 3), "one hot"), None),
    "labels": (SERIES, (3, "softmax"), Field((6,), "whole"), None),
    "short": (SERIES, (3, None), Field((2,), "whole"), None),
}
"""What is given, the last layer, the targets, and the rows' weights."""


def _loss_steps(name: str, kind: type, extent: Extent) -> Iterator[TracedStep]:
    return _predicting_steps(name, kind, extent, lambda make: {"loss": make()})


def _metric_steps(name: str, kind: type, extent: Extent) -> Iterator[TracedStep]:
    def compiled(make: Make) -> dict[str, Any]:
        return {"loss": _square, "metrics": [make()], "weighted_metrics": [make()]}

    if "y_pred" in inspect.signature(kind.update_state).parameters:
        yield from _predicting_steps(name, kind, extent, compiled)
        return
    for option, make in makers(kind, extent is Extent.OPTIONS):
        with refusal_noted(name):
            model = keras.Sequential([ROW.symbol(), keras.layers.Dense(3), _Measured(make())])
            yield _traced(name, option, model, ROW, Field((3,)), loss="mse")


class _Measured(keras.layers.Layer):
    """Passes its inputs on, and to a metric."""

    def __init__(self, metric: Any) -> None:
        super().__init__()
        self.metric = metric

    def call(self, inputs: Any) -> Any:
        self.metric.update_state(inputs)
        return inputs


def _predicting_steps(
    name: str, kind: type, extent: Extent, compiled: Callable[[Make], dict[str, Any]]
) -> Iterator[TracedStep]:
    for option, make in makers(kind, extent is Extent.OPTIONS):
        taken = 0
        for label, (given, last, target, weight) in _PREDICTIONS.items():
            if taken < (1 if option else _inputs(extent)):
                with refusal_noted(name):
                    model = keras.Sequential([given.symbol(), keras.layers.Dense(*last)])
                    variant = f"{option} {label}".strip()
                    step = _traced(name, variant, model, given, target, weight, **compiled(make))
                    yield step
                    taken += step.fits


def _square(y: Any, predicted: Any) -> Any:
    """A loss for targets of any shape."""
    return keras.ops.mean(keras.ops.square(predicted), axis=-1)


def _optimizer_steps(name: str, kind: type, extent: Extent) -> Iterator[TracedStep]:
    for option, make in makers(kind, extent is Extent.OPTIONS):
        with refusal_noted(name):
            model = keras.Sequential(
                [
                    TOKENS.symbol(),
                    keras.layers.Embedding(11, 4),
                    keras.layers.Dense(3),
                    keras.layers.GlobalAveragePooling1D(),
                ]
            )
            yield _traced(name, option, model, TOKENS, Field((3,)), loss="mse", optimizer=make())


def _schedule_steps(name: str, kind: type, extent: Extent) -> Iterator[TracedStep]:
    for option, make in makers(kind, extent is Extent.OPTIONS):
        with refusal_noted(name):
            optimizer = keras.optimizers.SGD(make())
            model = keras.Sequential([ROW.symbol(), keras.layers.Dense(3)])
            yield _traced(name, option, model, ROW, Field((3,)), loss="mse", optimizer=optimizer)


def _regularizer_steps(name: str, kind: type, extent: Extent) -> Iterator[TracedStep]:
    for option, make in makers(kind, extent is Extent.OPTIONS):
        for what in ("kernel_regularizer", "activity_regularizer"):
            with refusal_noted(name):
                model = keras.Sequential([ROW.symbol(), keras.layers.Dense(3, **{what: make()})])
                yield _traced(name, f"{option} {what}".strip(), model, ROW, Field((3,)), loss="mse")


def _constraint_steps(name: str, kind: type, extent: Extent) -> Iterator[TracedStep]:
    for option, make in makers(kind, extent is Extent.OPTIONS):
        with refusal_noted(name):
            model = keras.Sequential([ROW.symbol(), keras.layers.Dense(3, kernel_constraint=make())])
            yield _traced(name, option, model, ROW, Field((3,)), loss="mse")


def _activation_steps(name: str, function: Callable[..., Any], extent: Extent) -> Iterator[TracedStep]:
    for given in (ROW, SERIES):
        with refusal_noted(name):
            model = keras.Sequential([given.symbol(), keras.layers.Dense(4), keras.layers.Activation(function)])
            yield _traced(name, f"rank {len(given.shape) + 1}", model, given, _targets(model, given), loss="mse")


_FAMILIES: dict[str, Callable[[str, type, Extent], Iterator[TracedStep]]] = {
    "layers": _layer_steps,
    "losses": _loss_steps,
    "metrics": _metric_steps,
    "optimizers": _optimizer_steps,
    "optimizers.schedules": _schedule_steps,
    "regularizers": _regularizer_steps,
    "constraints": _constraint_steps,
}


def _traced(name: str, variant: str, model: Any, *batch: Any, **compiled: Any) -> TracedStep:
    fields = tf.nest.map_structure(lambda item: item, [part for part in batch if part is not None])
    example = tf.nest.map_structure(lambda item: tf.constant(item.rows(ROWS[0], np.random.default_rng(0))), fields)
    keras.utils.set_random_seed(1)
    model.compile(**{"optimizer": keras.optimizers.SGD(0.1), **compiled})
    model._symbolic_build(data_batch=tuple(example))
    model.make_train_function()
    step = tf.function(lambda data: model.train_function(iter([data])), autograph=False)
    specs = tf.nest.map_structure(lambda item: tf.TensorSpec((None, *item.shape), item.dtype), tuple(fields))
    return TracedStep(name, variant, model, step.get_concrete_function(specs), tf.nest.flatten(fields))
