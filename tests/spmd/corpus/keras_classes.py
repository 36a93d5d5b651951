"""Every public class of Keras that takes part in a step, made with arguments chosen by the names of its parameters."""

import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras

Make = Callable[[], Any]

EXCUSED = {
    "constraints.Constraint": "a base class",
    "layers.FlaxLayer": "JAX's",
    "layers.InputLayer": "an input, in every model",
    "layers.InputSpec": "no layer",
    "layers.JaxLayer": "JAX's",
    "layers.Layer": "a base class",
    "layers.STFTSpectrogram": "needs SciPy",
    "layers.TFSMLayer": "needs a saved model",
    "layers.TorchModuleWrapper": "PyTorch's",
    "layers.Wrapper": "a base class",
    "losses.Loss": "a base class",
    "metrics.Metric": "a base class",
    "optimizers.Optimizer": "a base class",
    "optimizers.OptimizerMap": "no optimizer",
    "optimizers.schedules.LearningRateSchedule": "a base class",
    "regularizers.Regularizer": "a base class",
}
"""What gets no step of its own, and why."""

_NEEDED: dict[str, list[Any]] = {
    "activation": ["tanh"],
    "axes": [-1],
    "boundaries": [lambda: [2, 4]],
    "cell": [lambda: keras.layers.SimpleRNNCell(4), lambda: keras.layers.StackedRNNCells(_cells())],
    "cells": [lambda: _cells()],
    "decay_rate": [0.5],
    "decay_steps": [3],
    "default_optimizer": [lambda: keras.optimizers.SGD(0.1)],
    "default_value": [-0.2],
    "dims": [(2, 1)],
    "equation": ["...x,xy->...y"],
    "factor": [0.3, 4],
    "filters": [4],
    "first_decay_steps": [3],
    "fn": [lambda: keras.losses.mean_absolute_error],
    "function": [lambda: _doubled],
    "head_dim": [3],
    "height": [4, 6],
    "height_factor": [0.3],
    "initial_learning_rate": [0.1],
    "inner_optimizer": [lambda: keras.optimizers.SGD(0.1)],
    "input_dim": [11],
    "kernel_size": [3],
    "key_dim": [3],
    "layer": [lambda: keras.layers.Dense(4), lambda: keras.layers.GRU(4, return_sequences=True)],
    "layers": [lambda: [keras.layers.Rescaling(0.5), keras.layers.RandomFlip(seed=1)]],
    "max_number": [3],
    "n": [3],
    "num_bins": [9],
    "num_classes": [3],
    "num_heads": [2],
    "num_key_value_heads": [2],
    "num_query_heads": [4],
    "optimizer_map": [lambda: keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1))],
    "output_dim": [4],
    "output_shape": [4],
    "output_size": [2],
    "pool_size": [2],
    "precision": [0.5],
    "rate": [0.4],
    "recall": [0.5],
    "scale": [0.5],
    "sensitivity": [0.5],
    "specificity": [0.5],
    "stddev": [0.3],
    "target_class_ids": [(0, 1)],
    "target_shape": [(-1, 2)],
    "threshold": [0.1],
    "units": [4],
    "values": [lambda: [0.1, 0.05, 0.01]],
    "width": [4, 6],
    "width_factor": [0.3],
}
"""Values for parameters without a default; what must be made afresh for each object is made by a function."""

_GIVEN: dict[str, Any] = {
    "bin_boundaries": (-0.5, 0.0, 0.5),
    "fft_length": 8,
    "frame_length": 4,
    "mean": 0.5,
    "num_mel_bins": 4,
    "num_tokens": 11,
    "seed": 1,
    "sequence_stride": 2,
    "variance": 2.0,
}
"""Values for parameters that have a default with which nothing comes about."""

_OPTIONS: dict[str, list[Any]] = {
    "activity_regularizer": ["l2"],
    "average": ["micro", "macro", "weighted"],
    "axis": [1, -1],
    "clipnorm": [0.05],
    "clipvalue": [0.01],
    "depth_multiplier": [2],
    "dilation_rate": [2],
    "dropout": [0.3],
    "global_clipnorm": [0.05],
    "gradient_accumulation_steps": [2],
    "groups": [2],
    "interpolation": ["nearest"],
    "kernel_regularizer": ["l2"],
    "label_smoothing": [0.1],
    "learning_rate": [lambda: keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)],
    "loss_scale_factor": [4.0],
    "max_norm": [0.5],
    "merge_mode": ["sum", "mul", "ave", None],
    "momentum": [0.9],
    "num_thresholds": [4],
    "output_mode": ["one_hot", "multi_hot", "count"],
    "padding": ["same", "valid", "causal"],
    "recurrent_dropout": [0.3],
    "reduction": ["sum", "mean_with_sample_weight"],
    "strides": [2],
    "thresholds": [(0.3, 0.6)],
    "top_k": [2],
    "use_ema": [True],
    "weight_decay": [0.01],
}
"""Values for parameters that may be left out, each tried by itself; parameters that are true or false are turned."""


def public_classes(module: str) -> Iterator[tuple[str, type]]:
    """The public classes of a module of Keras, each once, by its path below `keras`."""
    seen: set[type] = set()
    for name, value in sorted(vars(_module(module)).items()):
        if inspect.isclass(value) and value not in seen:
            seen.add(value)
            yield f"{module}.{name}", value


def public_activations() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public activation functions, each once."""
    seen: set[Any] = set()
    for name, value in sorted(vars(keras.activations).items()):
        if inspect.isfunction(value) and next(iter(inspect.signature(value).parameters)) == "x" and value not in seen:
            seen.add(value)
            yield f"activations.{name}", _with_arguments(value)


def _with_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    _, *others = inspect.signature(function).parameters.values()
    return partial(function, **{item.name: _NEEDED[item.name][0] for item in others if item.default is item.empty})


def makers(kind: type, options: bool = True) -> Iterator[tuple[str, Make]]:
    """Ways to make an object of a class: with what it needs, then with each of its options. Some may fail."""
    parameters = [
        parameter
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if name != "self" and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    given = {parameter.name: _GIVEN[parameter.name] for parameter in parameters if _GIVEN.get(parameter.name)}
    if any(parameter.name == "vocabulary" for parameter in parameters):
        given["vocabulary"] = [11, 12, 13] if "Integer" in kind.__name__ else ["a", "b", "c"]
    given = {name: value for name, value in given.items() if name not in needed}
    for values in itertools.product(*(_NEEDED.get(name, [None]) for name in needed)):
        yield "", _maker(kind, dict(zip(needed, values, strict=True)) | given)
    if not options:
        return
    base = {name: _NEEDED.get(name, [None])[0] for name in needed} | given
    for parameter in parameters:
        turned = [not parameter.default] if isinstance(parameter.default, bool) else []
        for value in [*turned, *(item for item in _OPTIONS.get(parameter.name, ()) if item not in turned)]:
            if parameter.name not in needed and value != parameter.default:
                shown = "object" if callable(value) else value
                yield f"{parameter.name}={shown}", _maker(kind, base | {parameter.name: value})


def _maker(kind: type, arguments: dict[str, Any]) -> Make:
    return lambda: kind(**{name: value() if callable(value) else value for name, value in arguments.items()})


def _module(path: str) -> Any:
    module = keras
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _cells() -> list[Any]:
    return [keras.layers.GRUCell(4), keras.layers.LSTMCell(3)]


def _doubled(x: Any) -> Any:
    return 2 * x
