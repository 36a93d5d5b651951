"""TensorFlow's tutorial on custom loops over several workers, in small: data shared by hand, going on mid-epoch."""

import numpy as np
import tensorflow as tf
from ground import folder, images, labels, rank, results, size, strategy

GLOBAL_BATCH_SIZE, STEPS_PER_EPOCH = 12, 4


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE)
    used = GLOBAL_BATCH_SIZE * STEPS_PER_EPOCH
    dataset = tf.data.Dataset.from_tensor_slices((images[:used], labels[:used]))
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.repeat().batch(batch_size).prefetch(2)


with strategy.scope():
    multi_worker_dataset = strategy.distribute_datasets_from_function(dataset_fn)
    weight = tf.Variable(tf.zeros([784, 10], tf.float64))
    bias = tf.Variable(tf.zeros([10], tf.float64), aggregation=tf.VariableAggregation.MEAN)
    steps_taken = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    epoch = tf.Variable(tf.constant(0, tf.int64), name="epoch")
    step_in_epoch = tf.Variable(tf.constant(0, tf.int64), name="step_in_epoch")


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            logits = tf.reshape(x, [-1, 784]) @ weight + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            loss = tf.nn.compute_average_loss(losses)
        gradients = tape.gradient(loss, [weight, bias])
        for_weight, for_bias = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        tf.distribute.get_replica_context().merge_call(update, args=(for_weight,))
        bias.assign_sub(0.1 * for_bias)
        steps_taken.assign_add(1)
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step_fn, args=(next(iterator),)), axis=None)


def update(strategy, gradient):
    strategy.extended.update(weight, lambda variable, value: variable.assign_sub(0.1 * value), args=(gradient,))


checkpoint = tf.train.Checkpoint(
    weight=weight, bias=bias, steps_taken=steps_taken, epoch=epoch, step_in_epoch=step_in_epoch
)
manager = tf.train.CheckpointManager(checkpoint, str(folder / f"loop_{rank}"), max_to_keep=1)


def train(until_epoch: int, stop_at_step: int = -1) -> list[float]:
    """As long as there are epochs to go, or up to a step: what is cut short there goes on from its checkpoint."""
    iterator = iter(multi_worker_dataset)
    losses = []
    for _ in range(int(step_in_epoch)):
        next(iterator)
    while int(epoch) < until_epoch:
        while int(step_in_epoch) < STEPS_PER_EPOCH:
            if int(step_in_epoch) == stop_at_step:
                manager.save()
                return losses
            losses.append(float(train_step(iterator)))
            step_in_epoch.assign_add(1)
        epoch.assign_add(1)
        step_in_epoch.assign(0)
    return losses


first = train(until_epoch=2, stop_at_step=2)
for variable in (weight, bias, steps_taken, step_in_epoch):
    variable.assign(tf.zeros_like(variable))
checkpoint.restore(manager.latest_checkpoint).assert_consumed()
assert int(step_in_epoch) == 2
second = train(until_epoch=2)
assert int(steps_taken) == 2 * STEPS_PER_EPOCH
results["loop_losses"] = np.array(first + second)
results["loop_weights"] = np.concatenate([np.ravel(weight.numpy()), bias.numpy()])

# Values and reductions, as the guide shows them.
values = strategy.experimental_distribute_values_from_function(
    lambda context: tf.constant(1.0 + context.replica_id_in_sync_group)
)
total = strategy.reduce("SUM", strategy.run(lambda value: 2.0 * value, args=(values,)), axis=None)
assert float(total) == size * (size + 1)
gathered = strategy.gather(strategy.run(lambda: tf.reshape(values, [1])), axis=0)
np.testing.assert_array_equal(gathered, np.arange(1.0, size + 1))
