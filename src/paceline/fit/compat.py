"""Private names of Keras 3 that Paceline calls or replaces, with reasons, and a check at import that they exist.

What is replaced stands in `seams/table.py`, too, which knows whether it is there.

Nothing else in Paceline may import `keras.src`. Tested with Keras 3.15; when an attribute below is missing in a newer
one, this file says which.

| name | why there is no public way |
|---|---|
| `global_state`, `seed_generator` | where Keras keeps its own seed generator |
| `stateless_scope.in_stateless_scope` | whether an assignment changes a variable |
| a variable's `_value` | TensorFlow's variable in it; the public `value` may be a cast of what it reads |
| `TensorFlowTrainer._get_metrics_result_or_logs` | where `fit` takes the logs of an epoch's last step |
| `ArrayDataAdapter`, `GeneratorDataAdapter`, `PyDatasetAdapter` | kinds of data, and how each goes on |
| `GeneratorDataAdapter.generator`, `._first_batches` | what each iterator over a generator reads, and begins with |
| `data_adapter_utils.NUM_BATCHES_FOR_TENSOR_SPEC` | how many those are |
| `losses.loss` (module) | its `scale_…`, `unscale_…`, `reduce_values`, `apply_mask` fix a loss's denominator |
| `BaseOptimizer.apply`, `LossScaleOptimizer.apply` | where gradients enter, before clipping and accumulation |
| `BaseOptimizer._trainable_variables` | what one that a `train_step` keeps for itself has been built for |
| `BaseOptimizer._clip_gradients` | where accumulated gradients come out |
| `BaseOptimizer._backend_apply_gradients`, `._trainable_variables_indices`, `._variables` | an update, and of what |
| `TFOptimizer` and `BaseOptimizer._use_weight_decay` | what an update does through `tf.distribute` |
| `Variable._initialize_with_initializer`, `._value`, `._path` | where a variable gets its tensor on a server |
| `Variable._serialize_to_tensors`, `._restore_from_tensors` | what `tf.train.Checkpoint` has of it |
| `backend.tensorflow.numpy.take` | where an Embedding looks up rows |
| `Functional`, `Layer._flatten_layers` | a model that declares its inputs; the layers of layers |
| `BaseOptimizer.build` | where an optimizer makes its slots, with the strategy that it remembers |
| `TensorFlowTrainer.__init__`, `.fit` | where a model learns its strategy; where a run begins |
| `TensorFlowTrainer._eval_epoch_iterator` | the validation's data, which `fit` keeps from epoch to epoch |
| `TensorFlowTrainer._maybe_symbolic_build`, `._symbolic_build` | where a model is built before its first step |
| `TensorFlowTrainer._make_function` | where a step becomes a trainer's |
| `TensorFlowTrainer._aggregate_additional_loss` | where the losses of layers are scaled |
| `backend.tensorflow.random` (module) | where layers draw the random numbers of a batch's rows |
| `TensorFlowTrainer.make_predict_function`, `Trainer.reset_metrics` | where `predict`'s step, an epoch's sums begin |
| `backend.tensorflow.trainer.potentially_ragged_concat` | where `predict` puts batches together |
| `backend.tensorflow.trainer.concat` | how `predict` joins the steps of one execution |
| `backend.tensorflow.trainer.reduce_per_replica` | where `predict` puts the replicas' outputs together |
| `backend.tensorflow.trainer.TFEpochIterator` | where a dataset is handed to the strategy |
| `TFEpochIterator._get_iterator`, `._enumerate_iterator` | where it makes an iterator, and steps through it |
| `TFEpochIterator._interrupted_warning` | what it says at the end of data of unknown length |
| an epoch iterator's `_num_batches`, `_steps_seen`, `_current_iterator` | its place in the data |
| an epoch iterator's `_distributed_dataset` | what the strategy made of the dataset |
| a model's `_distribute_strategy` | the strategy that it was made in; the public name never says "none" |
| a callback list's `_async_train`, `_flush_futures` (Keras 3.10: `_clear_futures`) | waits for callbacks in threads |
| `saving_api.save_model`, `.save_weights` | what every public spelling of saving comes to |
| `saving_lib`, `legacy_h5_format` | where they open their files |
| `file_utils.get_file`, `.urlretrieve` | what datasets and pretrained models take their files with |
| `file_utils.is_remote_path`, `.exists`, `.File` | what Keras takes for remote, and how it writes other files |
| `array_slicing.train_validation_split` | which rows `fit` sets aside for `validation_split` |
| `traceback_utils.filter_traceback`, `._EXCLUDED_PATHS` | which frames Keras hides in tracebacks |
| `io_utils.print_msg` | where it names an export's path |
| `BackupAndRestore._save_model`, `._weights_path`, `ModelCheckpoint._save_model` | where callbacks write their files |
| `TensorBoard._train_writer` and other methods | where it opens its files |
| `tf.train.Checkpoint._write` | what `save`, `write` and `CheckpointManager.save` come to |
| `save` in the module of `tf.saved_model.save` | what TensorFlow's copies of `tf.saved_model` take it from |
| `checkpoint_management.update_checkpoint_state_internal`, `._delete_file_if_exists` | how they change the directory |
"""

import sys
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
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
