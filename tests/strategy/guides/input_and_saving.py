"""TensorFlow's tutorials on distributed input and on saving, in small: what the programs beside this one have not."""

import keras
import numpy as np
import tensorflow as tf
from ground import folder, images, labels, rank, results, size, strategy

GLOBAL_BATCH_SIZE = 12
is_distributed = strategy is not tf.distribute.get_strategy()
"""Not in one worker without Paceline: the default strategy leaves everything as it is."""


def of_all_replicas(value):
    """The replicas' values one after the other, as one worker's loop would collect them."""
    return (strategy.gather(value, axis=0) if is_distributed else value).numpy()


# A step that is a tf.function by itself, over `for … in` and over `next` of an iterator.
data = tf.data.Dataset.from_tensors(([1.0], [2.0])).repeat(30).batch(GLOBAL_BATCH_SIZE)
distributed = strategy.experimental_distribute_dataset(data)
assert isinstance(distributed, tf.distribute.DistributedDataset) == is_distributed
assert isinstance(iter(distributed), tf.distribute.DistributedIterator) == is_distributed


@tf.function
def step(inputs):
    features, targets = inputs
    return targets - 0.3 * features


results["for_in"] = np.concatenate([of_all_replicas(strategy.run(step, args=(batch,))) for batch in distributed])
iterator = iter(distributed)
results["next"] = np.concatenate([of_all_replicas(strategy.run(step, args=(next(iterator),))) for _ in range(2)])


# The signature of a distributed batch.
@tf.function(input_signature=[distributed.element_spec])
def step_of_signature(inputs):
    return strategy.run(lambda inputs: 2.0 * inputs[0] + inputs[1], args=(inputs,))


results["signature"] = np.concatenate([of_all_replicas(step_of_signature(batch)) for batch in distributed])


# A loop that ends with the data: `get_next_as_optional` and `break`.
@tf.function
def as_long_as_there_is_data(iterator):
    total = tf.constant(0, tf.int64)
    for _ in tf.range(5):
        batch = iterator.get_next_as_optional()
        if not batch.has_value():
            break
        summed = strategy.run(tf.reduce_sum, args=(batch.get_value(),))
        total += strategy.reduce("SUM", summed, axis=None)
    return total


numbers = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(9).batch(4)))
results["optional"] = as_long_as_there_is_data(numbers).numpy()


# Batches of batches, and a preprocessing layer inside the function that makes the data.
with strategy.scope():
    lookup = keras.layers.StringLookup(vocabulary=["a", "b", "c", "d"])


def words_of(input_context):
    batch_size = input_context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE)
    words = tf.data.Dataset.from_tensor_slices(["a", "c", "x"] * 8)
    words = words.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return words.batch(2, drop_remainder=True).map(lookup).batch(batch_size).prefetch(2)


indices = strategy.distribute_datasets_from_function(words_of)
results["lookup"] = sum(
    float(strategy.reduce("SUM", strategy.run(tf.reduce_sum, args=(batch,)), axis=None)) for batch in indices
)

# Predictions put back in the order of the data, by the index of each row.
ordered = {}
rows = tf.data.Dataset.range(20).map(lambda x: 3 * x).enumerate().batch(6)
for index, inputs in strategy.experimental_distribute_dataset(rows):
    index, outputs = strategy.run(lambda index, inputs: (index, 2 * inputs), args=(index, inputs))
    ordered.update(zip(of_all_replicas(index).tolist(), of_all_replicas(outputs).tolist(), strict=True))
results["in_order"] = np.array([ordered[index] for index in range(20)])

# A generator whose numbers come from NumPy: the same on all ranks, which take their rows.
generated = tf.data.Dataset.from_generator(
    lambda: (np.random.default_rng(number).random(4) for number in range(3)),
    output_signature=tf.TensorSpec([4], tf.float64),
)
results["generator"] = np.concatenate(
    [of_all_replicas(batch) for batch in strategy.experimental_distribute_dataset(generated)]
)

# What a library does without knowing the strategy.
assert float(tf.distribute.get_strategy().reduce("SUM", 1.0, axis=None)) == 1.0
with strategy.scope():
    assert float(tf.distribute.get_strategy().reduce("SUM", 1.0, axis=None)) == size

# A Keras file goes on under another strategy, with the optimizer's state.
pairs = tf.data.Dataset.from_tensor_slices((images, labels)).batch(GLOBAL_BATCH_SIZE)
with strategy.scope():
    model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(pairs, epochs=1, verbose=0)
model.save(folder / "digits.keras")
with strategy.scope():
    restored = keras.models.load_model(folder / "digits.keras")
restored.fit(pairs, epochs=1, verbose=0)
results["restored_keras_file"] = np.concatenate([np.ravel(value) for value in restored.get_weights()])
assert int(restored.optimizer.iterations) == 2 * len(pairs)

# `tf.saved_model.save` with options, and its signature called by the strategy.
options = tf.saved_model.SaveOptions(experimental_io_device="/job:localhost")
tf.saved_model.save(model, str(folder / "saved"), options=options)
with strategy.scope():
    load_options = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")
    loaded = tf.saved_model.load(str(folder / "saved"), options=load_options)
    serve = loaded.signatures["serving_default"]
inputs = strategy.experimental_distribute_dataset(pairs.map(lambda image, label: image).take(2))
served = [of_all_replicas(next(iter(strategy.run(serve, args=(batch,)).values()))) for batch in inputs]
results["served_signature"] = np.concatenate(served)


# A subclassed model knows its input after `fit`, and can be exported then.
class SubclassedModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(5)

    def call(self, inputs):
        return self.dense(inputs)


with strategy.scope():
    subclassed = SubclassedModel()
    subclassed.compile("adam", "mean_squared_error")
numbers = tf.range(5.0, dtype=tf.float64)
subclassed.fit(tf.data.Dataset.from_tensors((numbers, numbers)).repeat(24).batch(6), epochs=2, verbose=0)
subclassed.export(str(folder / f"subclassed_{rank}"), verbose=False)
again = tf.saved_model.load(str(folder / f"subclassed_{rank}"))
results["subclassed"] = again.serve(numbers[tf.newaxis]).numpy()
