"""The patched functions of Keras and TensorFlow that write files: a table for `install.py`."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf

from paceline.fit import compat
from paceline.fit.files import keras_callbacks, model_files, once, tensorflow_files

Replace = Callable[[Any, str, Callable[[Any], Any]], None]
"""``replace(owner, name, wrap)``: puts `wrap(original)` in the original's place."""


def install(keras: ModuleType, replace: Replace) -> None:
    """Replaces them all."""
    for name in ("save_model", "save_weights"):
        original = getattr(compat.saving_api, name)
        replace(compat.saving_api, name, model_files.saved_once)
        spread(original, getattr(compat.saving_api, name))
    replace(compat.saving_lib, "save_model", model_files.model_replaced)
    replace(compat.saving_lib, "save_weights_only", model_files.weights_replaced)
    replace(compat.legacy_h5_format, "save_model_to_hdf5", model_files.hdf5_replaced)
    replace(keras.Model, "export", lambda original: model_files.saved_once(model_files.export_replaced(original)))
    replace(compat.file_utils, "File", model_files.file_replaced)
    original = compat.file_utils.get_file
    replace(compat.file_utils, "get_file", once.downloaded_once)
    spread(original, compat.file_utils.get_file)
    replace(compat.file_utils, "urlretrieve", once.retrieved_whole)
    replace(compat.io_utils, "print_msg", model_files.told_by_its_name)

    callbacks = keras.callbacks
    replace(callbacks.ModelCheckpoint, "_save_model", keras_callbacks.decided_alike)
    replace(callbacks.BackupAndRestore, "_save_model", keras_callbacks.backed_up_once)
    replace(callbacks.BackupAndRestore, "on_train_begin", keras_callbacks.restored_in_turn)
    replace(callbacks.BackupAndRestore, "on_train_end", keras_callbacks.removed_in_turn)

    replace(callbacks.CallbackList, "__init__", keras_callbacks.without_chief_only)
    replace(callbacks.CSVLogger, "on_train_begin", keras_callbacks.to_null_device)
    for name in ("_train_writer", "_val_writer"):
        setattr(callbacks.TensorBoard, name, keras_callbacks.to_no_summary(getattr(callbacks.TensorBoard, name)))
    for name in ("_configure_embeddings", "_start_trace", "_stop_trace"):
        replace(callbacks.TensorBoard, name, keras_callbacks.on_chief)
    replace(callbacks.TensorBoard, "_log_embeddings", keras_callbacks.embeddings_saved)

    # TensorFlow makes copies of `tf.saved_model`, some of them later (`import tensorflow.saved_model`, as Keras does).
    original = tf.saved_model.save
    replace(compat.saved_model_module, "save", tensorflow_files.saved_once)
    spread(original, compat.saved_model_module.save, "tensorflow", ".saved_model")
    replace(tf.data.Dataset, "save", tensorflow_files.dataset_saved_once)
    replace(tf.train.Checkpoint, "_write", tensorflow_files.written_once)
    for name in ("update_checkpoint_state_internal", "_delete_file_if_exists"):
        replace(compat.checkpoint_management, name, tensorflow_files.unless_keeping_books)


def spread(original: Any, replacement: Any, package: str = "keras", ending: str = "") -> None:
    """Under every name that modules of `package`, whose names end so, gave the function when they were imported."""
    for module in [
        module for name, module in sys.modules.items() if name.split(".")[0] == package and name.endswith(ending)
    ]:
        for name, value in list(vars(module).items()):
            if value is original:
                setattr(module, name, replacement)
