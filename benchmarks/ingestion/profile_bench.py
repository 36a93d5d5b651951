"""Is the gain that a profile prints the gain in `fit`? See README.md beside this file.

Without arguments it runs itself for each figure, with PIPELINE before|after: as a job of one worker, and in a profile.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

ROWS, BATCH, EPOCHS = 4096, 64, 8
PIPELINES = {
    "decode": "num_parallel_calls=tf.data.AUTOTUNE on `decode`",
    "decode, cheap model": "num_parallel_calls=tf.data.AUTOTUNE on `decode`",
    "decode, cached": ".cache() behind `decode`",
}


def images_of(pipeline: str, is_changed: bool) -> Any:
    """Batches of 32x32 images from text: the pipeline, or the same with the change that is advised."""
    import numpy as np
    import tensorflow as tf

    parallel = {"num_parallel_calls": tf.data.AUTOTUNE} if is_changed and "cached" not in pipeline else {}
    pixels = np.random.default_rng(0).integers(0, 255, [64, 32, 32, 3], np.uint8)
    encoded = tf.constant([tf.io.encode_png(image).numpy() for image in pixels])

    def decode(number: Any) -> Any:
        image = tf.io.decode_png(encoded[number % 64], 3)
        image = tf.image.resize(tf.ensure_shape(image, [32, 32, 3]), [96, 96], "bicubic")
        return tf.image.resize(image, [32, 32], antialias=True), number % 10

    rows = tf.data.Dataset.range(ROWS).shuffle(ROWS)
    if pipeline == "decode, cached":
        rows = tf.data.Dataset.range(ROWS).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        return (rows.cache() if is_changed else rows).shuffle(256).batch(BATCH).prefetch(2)
    return rows.map(decode, **parallel).batch(BATCH).prefetch(2)


def measure(pipeline: str, what: str) -> dict[str, float]:
    """Rows a second of `fit`, from the second epoch on."""
    import keras

    filters = 2 if "cheap" in pipeline else 8
    layers = [keras.layers.Conv2D(filters, 3, strides=4), keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = images_of(pipeline, what == "after")
    model.fit(data, epochs=1, verbose=0)
    begin = time.perf_counter()
    model.fit(data, epochs=EPOCHS, verbose=0)
    return {"value": EPOCHS * ROWS / (time.perf_counter() - begin)}


def printed_gains(pipeline: str) -> dict[str, float]:
    """What `paceline data profile` says of the change: `gain` of the input alone, and `gain_in_fit`."""
    command = [*harness.PACELINE, "data", "profile", "--json", __file__, pipeline, "before"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=harness.DEADLINE_SECONDS, check=True)
    advice = json.loads(done.stdout)["advice"]
    print(*advice, sep="\n", flush=True)
    found = next(one for one in advice if one["change"].startswith(PIPELINES[pipeline]))
    return {name: float(found[name]) for name in ("gain", "gain_in_fit")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("measured", nargs="*")
    options = parser.parse_args()
    if options.measured:
        measured = json.dumps(measure(*options.measured))  # in a profile it ends here
        Path(os.environ["BENCH_RESULT"]).write_text(measured)
        return
    rows = []
    for pipeline in PIPELINES:
        alone, printed, real = [], [], []
        for round_ in range(options.repeats):
            told = printed_gains(pipeline)
            for what in ("before", "after"):
                command = [*harness.PACELINE, "run", "--workers", "1", __file__, pipeline, what]
                told[what] = float(harness.run_job(command)["value"])
            alone.append(told["gain"])
            printed.append(told["gain_in_fit"])
            real.append(told["after"] / told["before"])
            print(f"round {round_ + 1}  {pipeline}: {told}", flush=True)
        ratio = [a / b for a, b in zip(printed, real, strict=True)]
        rows.append([pipeline, *(str(harness.Figure.of(values)) for values in (alone, printed, real, ratio))])
    print(harness.table(["pipeline", "input alone", "gain in the profile", "gain in fit", "profile / fit"], rows))


if __name__ == "__main__":
    main()
