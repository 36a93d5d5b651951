# ruff: noqa: PTH118, PTH119, PTH120
"""The tutorial's cells on saving: the model, a checkpoint, ModelCheckpoint and BackupAndRestore."""

import os
import sys

import mnist_setup
import numpy as np
import tensorflow as tf

folder = sys.argv[1]
model_path = os.path.join(folder, "keras-model.keras")  # the tutorial saves a directory, which Keras 3 no longer writes
checkpoint_dir = os.path.join(folder, "ckpt")

strategy = tf.distribute.MultiWorkerMirroredStrategy()
multi_worker_dataset = mnist_setup.mnist_dataset(64)
with strategy.scope():
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()
multi_worker_model.fit(multi_worker_dataset, epochs=1, steps_per_epoch=2, verbose=0)


def _is_chief(task_type, task_id, cluster_spec):
    return (
        task_type is None
        or task_type == "chief"
        or (task_type == "worker" and task_id == 0 and "chief" not in cluster_spec.as_dict())
    )


def write_filepath(filepath, task_type, task_id, cluster_spec):
    if _is_chief(task_type, task_id, cluster_spec):
        return filepath
    dirpath = os.path.join(os.path.dirname(filepath), "workertemp_" + str(task_id))
    tf.io.gfile.makedirs(dirpath)
    return os.path.join(dirpath, os.path.basename(filepath))


def wait_for_all():
    strategy.reduce("SUM", strategy.run(lambda: tf.constant(1)), axis=None)


def weights():
    return np.concatenate([np.ravel(value) for value in multi_worker_model.get_weights()])


task_type, task_id, cluster_spec = (
    strategy.cluster_resolver.task_type,
    strategy.cluster_resolver.task_id,
    strategy.cluster_resolver.cluster_spec(),
)
write_model_path = write_filepath(model_path, task_type, task_id, cluster_spec)
multi_worker_model.save(write_model_path)
if not _is_chief(task_type, task_id, cluster_spec):
    tf.io.gfile.rmtree(os.path.dirname(write_model_path))
wait_for_all()
loaded = tf.keras.models.load_model(model_path)
assert np.array_equal(np.concatenate([np.ravel(value) for value in loaded.get_weights()]), weights())

checkpoint = tf.train.Checkpoint(model=multi_worker_model)
write_checkpoint_dir = write_filepath(checkpoint_dir, task_type, task_id, cluster_spec)
checkpoint_manager = tf.train.CheckpointManager(checkpoint, directory=write_checkpoint_dir, max_to_keep=1)
checkpoint_manager.save()
if not _is_chief(task_type, task_id, cluster_spec):
    tf.io.gfile.rmtree(write_checkpoint_dir)
wait_for_all()
saved = weights()
multi_worker_model.fit(multi_worker_dataset, epochs=1, steps_per_epoch=2, verbose=0)
assert not np.array_equal(weights(), saved)
checkpoint.restore(tf.train.latest_checkpoint(checkpoint_dir))
assert np.array_equal(weights(), saved)
multi_worker_model.fit(multi_worker_dataset, epochs=1, steps_per_epoch=2, verbose=0)

callbacks = [tf.keras.callbacks.BackupAndRestore(backup_dir=os.path.join(folder, "backup"))]
with strategy.scope():
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()
multi_worker_model.fit(multi_worker_dataset, epochs=2, steps_per_epoch=2, verbose=0, callbacks=callbacks)

best = tf.keras.callbacks.ModelCheckpoint(os.path.join(folder, "best.keras"), monitor="loss")
multi_worker_model.fit(multi_worker_dataset, epochs=2, steps_per_epoch=2, verbose=0, callbacks=[best])
wait_for_all()
loaded = tf.keras.models.load_model(os.path.join(folder, "best.keras"))
assert np.array_equal(np.concatenate([np.ravel(value) for value in loaded.get_weights()]), weights())
print("all cells ran")
