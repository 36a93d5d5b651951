"""Private names of Keras 3 that Paceline calls, or overrides in a subclass, with reasons; a check that they exist.

What is replaced stands in `seams/table.py`, and in docs/seams.md, with reasons of its own. Here is where it is found.

Nothing else in Paceline may import `keras.src`. Tested with Keras 3.15; when an attribute below is missing in a newer
one, this file says which.

| name | why there is no public way |
|---|---|
| `global_state`, `seed_generator` | where Keras keeps its own seed generator |
| `stateless_scope.in_stateless_scope` | whether an assignment changes a variable |
| a variable's `_value` | TensorFlow's variable in it; the public `value` may be a cast of what it reads |
| a variable's `_path` | the parts of a table have names of their own |
| `ArrayDataAdapter`, `GeneratorDataAdapter`, `PyDatasetAdapter` | kinds of data, and how each goes on |
| `GeneratorDataAdapter.generator`, `._first_batches` | what each iterator over a generator reads, and begins with |
| `data_adapter_utils.NUM_BATCHES_FOR_TENSOR_SPEC` | how many those are |
| `PyDatasetAdapter._standardize_batch`, `._infinite_generator` | how its items become batches |
| `array_slicing.train_validation_split` | which rows `fit` sets aside for `validation_split` |
| `losses.loss.squeeze_or_expand_to_same_rank` | how weights get as many dimensions as what they weigh |
| `backend.tensorflow.random`: `draw_seed`, `_cast_seed`, `_get_concrete_noise_shape` | what a draw begins with |
| an optimizer's `_trainable_variables`, `_trainable_variables_indices`, `_variables` | what it has been built for |
| an optimizer's `_accumulated_gradients` | its sums, where it accumulates |
| `BaseOptimizer._clip_gradients`, `._use_weight_decay` | what an update does with a table |
| `Functional`, `Layer._flatten_layers` | a model that declares its inputs; the layers of layers |
| `TensorFlowTrainer._symbolic_build` | builds a model from shapes |
| a model's `_compile_metrics`, `_compile_loss` | what `compile` was given, which the first step builds |
| a model's `_eval_epoch_iterator` | the validation's data, which `fit` keeps from epoch to epoch |
| a model's `_distribute_strategy` | the strategy that it was made in; the public name never says "none" |
| `backend.tensorflow.trainer.concat`, `.reduce_per_replica` | how `predict` puts steps and replicas together |
| `backend.tensorflow.trainer.TFEpochIterator` | where a dataset is handed to the strategy |
| `TFEpochIterator._get_iterator`, `._enumerate_iterator` | where it makes an iterator, and steps through it |
| `TFEpochIterator._interrupted_warning` | what it says at the end of data of unknown length |
| an epoch iterator's `_num_batches`, `_steps_seen`, `_current_iterator` | its place in the data |
| an epoch iterator's `_distributed_dataset` | what the strategy made of the dataset |
| a callback list's `_async_train`, `_flush_futures` (Keras 3.10: `_clear_futures`) | waits for callbacks in threads |
| `BackupAndRestore._weights_path` | where it writes |
| `file_utils.is_remote_path`, `.exists` | what Keras takes for remote, and whether it is there |
| `traceback_utils.filter_traceback`, `._EXCLUDED_PATHS` | which frames Keras hides in tracebacks |
"""

import sys
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

try:
    from keras.src.backend.common import global_state
    from keras.src.backend.common.stateless_scope import in_stateless_scope
    from keras.src.backend.tensorflow import numpy as numpy_module
    from keras.src.backend.tensorflow import random as random_module
    from keras.src.backend.tensorflow import trainer as trainer_module
    from keras.src.backend.tensorflow.optimizer import TFOptimizer
    from keras.src.callbacks.callback_list import CallbackList
    from keras.src.legacy.saving import legacy_h5_format
    from keras.src.losses import loss as loss_module
    from keras.src.models.functional import Functional
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
    from keras.src.random.seed_generator import global_seed_generator
    from keras.src.saving import saving_api, saving_lib
    from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
    from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
    from keras.src.trainers.epoch_iterator import EpochIterator
    from keras.src.trainers.trainer import Trainer
    from keras.src.utils import file_utils, io_utils, traceback_utils
except ImportError as fault:
    raise ImportError(
        f"Paceline does not support Keras {keras.__version__}: a name that it needs is missing ({fault}). "
        "Install a Keras that Paceline supports (3.10 to 3.15), or a newer Paceline. [version]"
    ) from fault

OF_COMPILE = ("_compile_metrics", "_compile_loss")
"""The attributes of a trainer with what `compile` was given, which the first step builds; None: there is none."""
GLOBAL_SEED_GENERATOR = "global_seed_generator"
"""The name under which Keras keeps it; a constant of its own has it only in newer versions."""
NUM_LOOKED_AT = data_adapter_utils.NUM_BATCHES_FOR_TENSOR_SPEC
"""Batches that Keras reads of a generator when it is given one."""
TensorFlowTrainer = trainer_module.TensorFlowTrainer
checkpoint_management = sys.modules[tf.train.CheckpointManager.__module__]
saved_model_module = sys.modules[tf.saved_model.save.__module__]

_REQUIRED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (loss_module, ("squeeze_or_expand_to_same_rank",)),
    (keras.Layer, ("_flatten_layers",)),
    (TensorFlowTrainer, ("_symbolic_build", "distribute_strategy")),
    (random_module, ("_get_concrete_noise_shape", "draw_seed", "floatx", "standardize_dtype")),
    (trainer_module, ("concat",)),
    (EpochIterator, ("_get_iterator", "_enumerate_iterator", "_interrupted_warning")),
    (PyDatasetAdapter, ("_standardize_batch", "_get_iterator", "_infinite_generator")),
    (array_slicing, ("train_validation_split",)),
    (file_utils, ("is_remote_path", "exists")),
    (traceback_utils, ("filter_traceback", "_EXCLUDED_PATHS")),
)
"""What is called, or overridden in a subclass; what is replaced stands in `seams/table.py`."""

_OF_INSTANCES: tuple[tuple[type, tuple[str, ...]], ...] = (
    (GeneratorDataAdapter, ("_first_batches",)),
    (EpochIterator, ("_num_batches", "_steps_seen", "_current_iterator")),
    (trainer_module.TFEpochIterator, ("_distributed_dataset",)),
    (TensorFlowTrainer, ("_distribute_strategy",)),
    (Trainer, OF_COMPILE),
    (CallbackList, ("_async_train",)),
    (keras.Variable.__mro__[1], ("_value",)),
)
"""Attributes that only instances have: the code of the class names them."""


def _names_in(owner: type) -> set[str]:
    """The names in the code of a class's own methods."""
    codes = [method.__code__ for method in vars(owner).values() if hasattr(method, "__code__")]
    return {name for code in codes for name in code.co_names}


_MISSING_OF_INSTANCES = [
    f"{owner.__name__}.{name}" for owner, names in _OF_INSTANCES for name in names if name not in _names_in(owner)
]
"""Found before any of these methods is replaced."""


filter_traceback = traceback_utils.filter_traceback
train_validation_split = array_slicing.train_validation_split


def hide_frames_of(folder: str) -> None:
    """From now on Keras hides the frames of the files in `folder` as it hides its own."""
    traceback_utils._EXCLUDED_PATHS = (*traceback_utils._EXCLUDED_PATHS, folder)


def accumulated_gradients(optimizer: Any) -> list[Any]:
    """The sums of an optimizer with `gradient_accumulation_steps`; else, or before it is built, none."""
    return list(getattr(optimizer, "_accumulated_gradients", ()))


TRAINED = "_trainable_variables"
"""The attribute of an optimizer that lists what it was built for."""
PLACES, ALL_OF_OPTIMIZER = "_trainable_variables_indices", "_variables"
"""Those that say where in this list a variable is, and list all variables of its own."""


def trained_variables(optimizer: Any) -> list[Any]:
    """What an optimizer was built for."""
    return list(getattr(optimizer, TRAINED))


def first_batches(adapter: Any) -> list[Any]:
    """What Keras has looked at of a generator, as its `GeneratorDataAdapter` keeps it."""
    return list(adapter._first_batches)


def wait_for_callbacks(callbacks: Any) -> None:
    """Returns when the methods of callbacks that Keras calls in threads have returned."""
    if getattr(callbacks, "_async_train", False):
        (getattr(callbacks, "_flush_futures", None) or callbacks._clear_futures)()


def validation_iterator(model: Any) -> Any:
    """The epoch iterator of the validation in a `fit`; None outside one."""
    return getattr(model, "_eval_epoch_iterator", None)


def all_layers(model: Any) -> list[Any]:
    """The layers of a model, also those within others, and itself."""
    return list(model._flatten_layers())


def is_functional(model: Any) -> bool:
    """Whether `model` was made from its inputs and outputs, and so declares its inputs' shapes."""
    return isinstance(model, Functional)


def check(missing: Sequence[str] = ()) -> None:
    """Says at once which private names a new Keras no longer has.

    Args:
        missing: Names of which somebody else knows that.

    Raises:
        ImportError: Keras is not one that Paceline knows.
    """
    called = [
        f"{getattr(owner, '__name__', owner)}.{name}"
        for owner, names in _REQUIRED
        for name in names
        if not hasattr(owner, name)
    ]
    if missing := [*_MISSING_OF_INSTANCES, *called, *missing]:
        raise ImportError(
            f"Paceline does not support Keras {keras.__version__}: it has no {', '.join(missing)}. Install a "
            "Keras that Paceline supports (3.10 to 3.15), or a newer Paceline. [version]"
        )


__all__ = [
    "ALL_OF_OPTIMIZER",
    "GLOBAL_SEED_GENERATOR",
    "NUM_LOOKED_AT",
    "PLACES",
    "TRAINED",
    "ArrayDataAdapter",
    "BaseOptimizer",
    "GeneratorDataAdapter",
    "LossScaleOptimizer",
    "PyDatasetAdapter",
    "TFOptimizer",
    "TensorFlowTrainer",
    "Trainer",
    "accumulated_gradients",
    "all_layers",
    "check",
    "checkpoint_management",
    "file_utils",
    "first_batches",
    "global_seed_generator",
    "global_state",
    "in_stateless_scope",
    "io_utils",
    "is_functional",
    "legacy_h5_format",
    "loss_module",
    "numpy_module",
    "random_module",
    "saved_model_module",
    "saving_api",
    "saving_lib",
    "train_validation_split",
    "trainer_module",
    "wait_for_callbacks",
]
