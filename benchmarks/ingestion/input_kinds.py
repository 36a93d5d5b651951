"""The inputs that are compared, as a script would write them; Paceline's workers and the old stack's read the same.

input_kinds.py FOLDER     writes the images
"""

import os
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

ROWS = {"heavy": 5760, "before shuffle": 5760, "images": 9600, "light": 60000, "arrays": 200000}
BATCH, FEATURES = 64, 64
IMAGE = (48, 48)


def heavy(number: Any) -> Any:
    """Some milliseconds of a core, as decoding an image takes."""
    matrix = tf.reshape(tf.cast(number % 7, tf.float32) * 0.01 + tf.range(64, dtype=tf.float32) * 1e-3, (8, 8))
    for _ in tf.range(300):
        matrix = tf.tanh(tf.matmul(matrix, matrix) + matrix)
    return tf.reshape(matrix, (FEATURES,)), tf.cast(number % 2, tf.float32)


def light(number: Any) -> Any:
    """Less than the rest of the pipeline does for a row."""
    return tf.fill([FEATURES], tf.cast(number, tf.float32) / 255.0), tf.cast(number % 2, tf.float32)


def data_of(kind: str, keras: Any) -> dict[str, Any]:
    """What `fit` of this Keras is given."""
    rows = ROWS[kind]
    if kind == "arrays":
        return {"x": tf.zeros([rows, FEATURES]).numpy(), "y": tf.zeros([rows]).numpy(), "batch_size": BATCH}
    if kind == "images":
        from_directory = keras.utils.image_dataset_from_directory
        folder = os.environ["BENCH_IMAGES"]
        return {"x": from_directory(folder, image_size=IMAGE, batch_size=BATCH, seed=5)}
    numbers = tf.data.Dataset.from_tensor_slices(tf.range(rows, dtype=tf.int64))
    work = light if kind == "light" else heavy
    if kind == "before shuffle":
        mapped = numbers.map(work, num_parallel_calls=tf.data.AUTOTUNE).shuffle(500, seed=5)
    else:
        mapped = numbers.shuffle(500, seed=5).map(work, num_parallel_calls=tf.data.AUTOTUNE)
    return {"x": mapped.batch(BATCH).prefetch(2)}


def model_of(kind: str, keras: Any) -> Any:
    """A small model, compiled."""
    shape = (*IMAGE, 3) if kind == "images" else (FEATURES,)
    model = keras.Sequential([keras.layers.InputLayer(shape), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-6), loss="mse", steps_per_execution=10)
    return model


def write_images(folder: Path) -> None:
    """Photographs, as far as a decoder can see: 9,600 JPEG files of 240 x 320 in two classes."""
    for number in range(ROWS["images"]):
        at = folder / f"class_{number % 2}"
        at.mkdir(exist_ok=True)
        small = tf.random.stateless_uniform([30, 40, 3], [number, 0], maxval=255)
        pixels = tf.cast(tf.image.resize(small, [240, 320]), tf.uint8)
        (at / f"{number}.jpg").write_bytes(tf.io.encode_jpeg(pixels).numpy())


if __name__ == "__main__":
    write_images(Path(sys.argv[1]))
