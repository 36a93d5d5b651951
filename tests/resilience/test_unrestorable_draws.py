"""What a step draws where no snapshot can see it: a GAN's `labels += 0.05 * tf.random.uniform(...)` began anew."""

import keras
import pytest
import tensorflow as tf

from paceline.resilience.random_generators import unrestorable_draws, warn_of_unrestorable_draws


@tf.function
def step(x: tf.Tensor, noise: keras.random.SeedGenerator, generator: tf.random.Generator) -> tf.Tensor:
    x = tf.nn.dropout(x, 0.5) + tf.random.normal(tf.shape(x))
    return (
        x + keras.random.normal((3,), seed=noise) + generator.uniform((3,)) + tf.random.stateless_uniform((3,), (1, 2))
    )


def test_only_what_tensorflow_draws_by_itself_is_told_and_only_once(caplog: pytest.LogCaptureFixture) -> None:
    generator = tf.random.Generator.from_seed(1)
    graph = step.get_concrete_function(tf.zeros(3), keras.random.SeedGenerator(1), generator).graph
    assert unrestorable_draws(graph) == ["RandomStandardNormal", "RandomUniform"]
    for _ in range(2):
        warn_of_unrestorable_draws(graph, is_chief=True)
    [line] = caplog.messages
    assert "(RandomStandardNormal, RandomUniform)" in line
