"""Pictures from a folder, one file a picture, and the same pictures from one TFRecord file.

python image_data.py make                                writes pictures/LABEL/N.jpg and pictures.tfrecord
paceline data profile image_data.py folder               where the time of the input goes
paceline run --workers 2 image_data.py records           trains
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import paceline.data

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"
FOLDER, RECORDS = Path("pictures"), Path("pictures.tfrecord")
NUM_PICTURES, SIDE = 1024, 224
BATCH = 64


def make() -> None:
    """Writes the first digits as pictures, much larger than they are, as pictures of a camera would be."""
    with np.load(DATA) as digits, tf.io.TFRecordWriter(str(RECORDS)) as writer:
        for number in range(NUM_PICTURES):
            label = int(digits["y_train"][number])
            grey = tf.image.resize(digits["x_train"][number, ..., np.newaxis], (SIDE, SIDE))
            jpeg = tf.io.encode_jpeg(tf.cast(grey, tf.uint8)).numpy()
            path = FOLDER / str(label) / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg)
            features = {
                "jpeg": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def decode(jpeg: tf.Tensor) -> tf.Tensor:
    picture = tf.image.resize(tf.io.decode_jpeg(jpeg, channels=1), (28, 28))
    return tf.ensure_shape(picture, (28, 28, 1)) / 255.0


def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    label = tf.strings.to_number(tf.strings.split(path, os.sep)[-2], tf.int64)
    return decode(tf.io.read_file(path)), label


def from_folder() -> tf.data.Dataset:
    """As one writes it first: a picture after the other."""
    paths = sorted(str(path) for path in FOLDER.glob("*/*.jpg"))
    return tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), seed=1).map(load).batch(BATCH)


def from_folder_faster() -> tf.data.Dataset:
    """With what the profile has said: pictures stay in memory as the model needs them."""
    paths = sorted(str(path) for path in FOLDER.glob("*/*.jpg"))
    decoded = tf.data.Dataset.from_tensor_slices(paths).map(load, num_parallel_calls=tf.data.AUTOTUNE).cache()
    return decoded.shuffle(len(paths), seed=1).batch(BATCH)


def from_records() -> tf.data.Dataset:
    """One file, of which each worker reads its own rows."""

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = {"jpeg": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        row = tf.io.parse_single_example(record, features)
        return decode(row["jpeg"]), row["label"]

    return paceline.data.records(RECORDS, parse, batch_size=BATCH, shuffle=True, seed=1)


def main(kind: str) -> None:
    if kind == "make":
        make()
        return
    keras.utils.set_random_seed(1)
    kinds = {"folder": from_folder, "faster": from_folder_faster, "records": from_records}
    model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    model.fit(kinds[kind](), epochs=3, verbose=2)


if __name__ == "__main__":
    main(sys.argv[1])
