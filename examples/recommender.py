"""A recommender with two tables of embeddings, which lie in shards on parameter servers.

paceline run --workers 2 --ps 2 recommender.py
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import paceline

NUM_USERS, NUM_FILMS, WIDTH = 2000, 1000, 8
NUM_TRAIN, NUM_TEST = 60_000, 4_000


def ratings() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who has seen which film, and the stars: made up from two traits of each user and film that nobody knows."""
    generator = np.random.default_rng(0)
    users = generator.integers(0, NUM_USERS, NUM_TRAIN + NUM_TEST)
    films = generator.integers(0, NUM_FILMS, NUM_TRAIN + NUM_TEST)
    tastes, kinds = generator.normal(size=(NUM_USERS, 2)), generator.normal(size=(NUM_FILMS, 2))
    return users, films, (tastes[users] * kinds[films]).sum(axis=1).astype("float32")


def build_model() -> keras.Model:
    user, film = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    taste = keras.layers.Embedding(NUM_USERS, WIDTH, keras.initializers.RandomNormal(0.1, seed=1), name="users")(user)
    kind = keras.layers.Embedding(NUM_FILMS, WIDTH, keras.initializers.RandomNormal(0.1, seed=2), name="films")(film)
    model = keras.Model([user, film], keras.layers.Dot(1)([taste, kind]))
    # Adagrad changes only the rows that a step has looked up: the rest of a table is not sent.
    optimizer = keras.optimizers.Adagrad(0.4, initial_accumulator_value=1e-4)
    model.compile(optimizer, "mse", steps_per_execution=10)  # a worker takes ten steps for one message of the chief
    return model


def main(epochs: int = 3) -> None:
    keras.utils.set_random_seed(1)
    users, films, stars = ratings()
    train, test = slice(NUM_TRAIN), slice(NUM_TRAIN, None)
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=16 << 10, max_shards=2)
    strategy = paceline.ParameterServerStrategy(variable_partitioner=partitioner)
    with strategy.scope():
        model = build_model()
    for name in ("users", "films"):
        for shard in model.get_layer(name).weights:
            print(f"{name}: a shard of {shard.shape[0]} rows on {shard.device.split('/device')[0]}")
    history = model.fit(
        [users[train], films[train]],
        stars[train],
        batch_size=250,
        epochs=epochs,
        validation_data=([users[test], films[test]], stars[test]),
        verbose=2,
    ).history
    print(f"steps {int(model.optimizer.iterations.numpy())}")
    print(f"stars are wrong by {np.sqrt(history['val_loss'][-1]):.2f}, where guessing 0 is by {stars[test].std():.2f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
