"""The replacements of what writes files in Keras and TensorFlow: one rank writes, each file is whole or as it was."""

import keras
import tensorflow as tf

from paceline.fit import compat
from paceline.fit.files import backups, keras_callbacks, model_files, once, tensorflow_files
from paceline.strategy.seams import Seam

_ONE_WRITES = "one rank writes, the others wait"
_ONE_SAVES = "one rank writes, the others wait, or give it what they have"
_NEWER = "a file of a step that will be taken again is told"
_WHOLE = "a kill leaves the old file or the new one"


def rows() -> list[Seam]:
    """The replacements."""
    callbacks = keras.callbacks
    tensorboard = callbacks.TensorBoard
    return [
        Seam(compat.saving_api, ("save_model", "save_weights"), model_files.saved, _ONE_SAVES, copies=""),
        Seam(
            compat.saving_api,
            "load_weights",
            model_files.loaded,
            f"a stage of a pipeline loads its own; {_NEWER}",
            copies="",
        ),
        Seam(compat.saving_api, "load_model", model_files.model_loaded, _NEWER, copies=""),
        Seam(compat.saving_lib, "save_model", model_files.model_replaced, _WHOLE),
        Seam(compat.saving_lib, "save_weights_only", model_files.weights_replaced, _WHOLE),
        Seam(compat.legacy_h5_format, "save_model_to_hdf5", model_files.hdf5_replaced, _WHOLE),
        Seam(keras.Model, "export", model_files.exported, f"{_ONE_SAVES}; {_WHOLE}"),
        Seam(compat.file_utils, "File", model_files.file_replaced, _WHOLE),
        Seam(compat.file_utils, "get_file", once.downloaded_once, "one rank of a host downloads", copies=""),
        Seam(compat.file_utils, "urlretrieve", once.retrieved_whole, _WHOLE),
        Seam(callbacks.ModelCheckpoint, "_save_model", keras_callbacks.decided_alike, "`best` advances on all ranks"),
        *backups.rows(),
        Seam(callbacks.CSVLogger, "on_train_begin", keras_callbacks.to_null_device, _ONE_WRITES),
        Seam(tensorboard, ("_train_writer", "_val_writer"), keras_callbacks.to_no_summary, _ONE_WRITES),
        Seam(
            tensorboard,
            ("_configure_embeddings", "_start_trace", "_stop_trace"),
            keras_callbacks.on_chief,
            _ONE_WRITES,
        ),
        Seam(tensorboard, "_log_embeddings", keras_callbacks.embeddings_saved, "all ranks of a pipeline save"),
        Seam(tensorboard, "_log_weights", keras_callbacks.weights_logged, "each weight is read, wherever it is"),
        # TensorFlow makes copies of `tf.saved_model`, some later (`import tensorflow.saved_model`, as Keras does).
        Seam(compat.saved_model_module, "save", tensorflow_files.saved_once, _ONE_WRITES, copies=".saved_model"),
        Seam(tf.data.Dataset, "save", tensorflow_files.dataset_saved_once, "one rank of a host writes"),
        Seam(tf.train.Checkpoint, "_write", tensorflow_files.written_once, _ONE_WRITES),
        Seam(
            compat.checkpoint_management,
            ("update_checkpoint_state_internal", "_delete_file_if_exists"),
            tensorflow_files.unless_keeping_books,
            "the rank that wrote keeps the list of checkpoints",
        ),
    ]
