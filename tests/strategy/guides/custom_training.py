"""TensorFlow's tutorials on custom loops and on saving, in small: model, optimizer and metrics under a strategy."""

import keras
import numpy as np
import tensorflow as tf
from ground import folder, images, labels, rank, results, strategy

NUM_IMAGES, GLOBAL_BATCH_SIZE, EPOCHS = len(images), 16, 2
"""The last batch of an epoch is smaller; three workers have unequal parts of every batch."""

train_dataset = (
    tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(NUM_IMAGES, seed=5).batch(GLOBAL_BATCH_SIZE)
)
test_dataset = tf.data.Dataset.from_tensor_slices((images[:50], labels[:50])).batch(GLOBAL_BATCH_SIZE)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)


def create_model() -> keras.Model:
    regularizer = keras.regularizers.L2(1e-3)
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(4, 3, strides=3, activation="relu", kernel_regularizer=regularizer),
            keras.layers.Flatten(),
            keras.layers.Dense(10, kernel_regularizer=regularizer),
        ]
    )


with strategy.scope():
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def compute_loss(labels, predictions, model_losses):
        per_example_loss = loss_object(labels, predictions)
        loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)
        if model_losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
        return loss

    test_loss = keras.metrics.Mean(name="test_loss")
    train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    model = create_model()
    optimizer = keras.optimizers.Adam(learning_rate=0.01)
    optimizer.build(model.trainable_variables)
    epoch_variable = tf.Variable(0, dtype=tf.int64)
    rows_seen = tf.Variable(
        0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
    )
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model, epoch=epoch_variable, rows=rows_seen)


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions, model.losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    train_accuracy.update_state(labels, predictions)
    rows_seen.assign_add(tf.cast(tf.shape(labels)[0], tf.float32))
    return loss


def test_step(inputs):
    images, labels = inputs
    predictions = model(images, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
def distributed_test_step(dataset_inputs):
    return strategy.run(test_step, args=(dataset_inputs,))


def train(name: str, epochs: int) -> None:
    for epoch in range(epochs):
        total_loss, num_batches = 0.0, 0
        for batch in train_dist_dataset:
            total_loss += distributed_train_step(batch)
            num_batches += 1
        for batch in test_dist_dataset:
            distributed_test_step(batch)
        numbers = [total_loss / num_batches, train_accuracy.result(), test_loss.result(), test_accuracy.result()]
        results[f"{name}_epoch{epoch}"] = np.array([float(number) for number in numbers])
        epoch_variable.assign_add(1)
        for metric in (test_loss, train_accuracy, test_accuracy):
            metric.reset_state()


def weights() -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in model.get_weights()])


train("loop", EPOCHS)
results["weights"] = weights()
results["rows_seen"] = np.array(float(rows_seen))

# Every worker takes part in saving; those that are not the chief write to a place of their own.
own_folder = folder / "checkpoints" if rank == 0 else folder / f"workertemp_{rank}"
manager = tf.train.CheckpointManager(checkpoint, directory=str(own_folder), max_to_keep=2)
manager.save()
train("after_saving", 1)
assert not np.array_equal(weights(), results["weights"])
strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))  # the chief has written
latest = tf.train.latest_checkpoint(str(folder / "checkpoints"))
assert latest is not None
checkpoint.restore(latest).assert_existing_objects_matched()
np.testing.assert_array_equal(weights(), results["weights"])
results["restored"] = np.array([float(rows_seen), int(epoch_variable), int(optimizer.iterations)])

with strategy.scope():
    new_model, new_optimizer = create_model(), keras.optimizers.Adam()
    later = tf.Variable(-1, dtype=tf.int64)
    new_checkpoint = tf.train.Checkpoint(optimizer=new_optimizer, model=new_model, epoch=later)
    new_checkpoint.restore(latest).expect_partial()
results["restored_into_another"] = np.concatenate([np.ravel(value) for value in new_model.get_weights()])
assert int(later) == EPOCHS

# Saved for serving, and loaded without a strategy and in one.
export = folder / f"exported_{rank}"
model.export(str(export), verbose=False)
outside = tf.saved_model.load(str(export))
with strategy.scope():
    inside = tf.saved_model.load(str(export))
expected = model(images[:3]).numpy()
np.testing.assert_allclose(outside.serve(images[:3]).numpy(), expected)
served = strategy.run(tf.function(lambda x: inside.serve(x)), args=(tf.constant(images[:3]),))
np.testing.assert_allclose(strategy.experimental_local_results(served)[0].numpy(), expected)
results["served"] = expected


# A loop inside one tf.function, and one over an iterator of a dataset that goes on.
@tf.function
def distributed_train_epoch(dataset):
    total_loss = tf.constant(0.0, tf.float64)
    for batch in dataset:
        losses = strategy.run(train_step, args=(batch,))
        total_loss += strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
    return total_loss


results["epoch_in_function"] = np.array([float(distributed_train_epoch(train_dist_dataset)) for _ in range(2)])


@tf.function
def train_some_steps(iterator):
    for _ in tf.range(3):
        strategy.run(train_step, args=(next(iterator),))


iterator = iter(strategy.experimental_distribute_dataset(train_dataset.repeat()))
for _ in range(2):
    train_some_steps(iterator)
results["steps_of_iterator"] = weights()
