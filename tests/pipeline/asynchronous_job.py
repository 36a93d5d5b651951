"""``asynchronous_job.py FOLDER STAGES``: PipeDream and 2BW compute with the weights that the papers say.

With ``digits`` behind it, they also learn the digits.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from delayed_training import digits_accuracy, digits_model, linear_data, linear_model, linear_weights, train_late
from pipelined_models import JOBS

import paceline
from paceline.pipeline.weight_versions import WeightVersions

folder, stages = Path(sys.argv[1]), int(sys.argv[2])
replicas = paceline.world_size() // stages
stage = paceline.rank() // replicas
DEEP, SHALLOW = [stages - 1 - at for at in range(stages)], [1] * (stages - 1) + [0]
KINDS = [  # schedule, micro-batches, vertical_sync, updates that each stage lacks
    ("pipedream", 1, False, DEEP),
    ("pipedream", 1, True, [stages - 1] * stages),
    ("pipedream", stages, False, SHALLOW),
    ("pipedream_2bw", stages, False, [1] * stages),
]
held: list[int] = []
"""After each update, how many places in memory have values of the stage's first weight."""


def noting(make_next):
    def noted(self, place):
        make_next(self, place)
        firsts = [values[id(weight)] for weight in self._weights[:1] for values in self.held.values()]
        views = [np.asarray(memoryview(value)) for value in firsts]  # of their own memory
        places = {view.__array_interface__["data"][0] for view in views}
        held.append(len(places) + 1)  # the update makes another one

    return noted


WeightVersions.make_next = noting(WeightVersions.make_next)


def strategy_of(schedule, micro_batches, vertical_sync, **options):
    return paceline.PipelineStrategy(
        stages=stages, micro_batches=micro_batches, schedule=schedule, vertical_sync=vertical_sync, **options
    )


keras.config.set_floatx("float64")
for schedule, micro_batches, vertical_sync, late in KINDS:
    x, y = linear_data()
    begun = [one.numpy() for one in linear_model(stages).trainable_variables]
    expected, at_once = [linear_weights(begun, x, y, 8, lacks, 0.1) for lacks in (late, [0] * stages)]
    assert not any(np.allclose(one, other) for one, other in zip(expected, at_once, strict=True))
    # 6 batches, the last of 4 rows; the plan is for 8
    with strategy_of(schedule, micro_batches, vertical_sync).scope():
        model = linear_model(stages)
        model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=8)
    held.clear()
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    own = model.get_layer(f"w{stage}").kernel.numpy()
    np.testing.assert_allclose(own, expected[stage], rtol=1e-9, atol=1e-12)
    assert max(held) == late[stage] + 1, (schedule, held)
    print(f"{schedule} {micro_batches} {vertical_sync}: the weights of the papers", flush=True)

job = JOBS["skips"]  # Dropout, a regulariser, Adam, the norm over all stages
of_stage = {2: {"first": 0, "third": 0}, 3: {"first": 0, "third": 1, "fourth": 1}}.get(stages, {})
for schedule, micro_batches, vertical_sync, late in KINDS[::3]:
    keras.utils.set_random_seed(5)
    plain = job.build()
    plain.compile(job.optimizer(), job.loss, metrics=job.metrics)
    late_of = {
        id(variable): late[of_stage.get(layer.name, stages - 1)]
        for layer in plain.layers
        for variable in layer.trainable_variables
    }
    batches = [(job.x[begin : begin + 4], job.y[begin : begin + 4]) for begin in range(0, len(job.x), 4)]
    losses = train_late(plain, late_of, batches, epochs=3, together=3)
    keras.utils.set_random_seed(5)
    cut = {2: ["third"], 3: ["first", "fourth"]}[stages]
    recompute = schedule == "pipedream_2bw"
    with strategy_of(schedule, micro_batches, vertical_sync, split_after=cut, recompute=recompute).scope():
        model = job.build()
        model.compile(job.optimizer(), job.loss, metrics=job.metrics, steps_per_execution=3)
    history = model.fit(
        job.x, job.y, batch_size=4, epochs=3, shuffle=False, validation_data=(job.x, job.y), verbose=0
    ).history
    np.testing.assert_allclose(history["loss"], losses, rtol=1e-9)
    evaluated = plain.evaluate(job.x, job.y, verbose=0, return_dict=True)
    np.testing.assert_allclose(
        [history[f"val_{name}"][-1] for name in evaluated], [*evaluated.values()], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(model.predict(job.x, verbose=0), plain.predict(job.x, verbose=0), rtol=1e-9, atol=1e-12)
    model.save(folder / f"{schedule}.keras")
    for own, whole in zip(keras.models.load_model(folder / f"{schedule}.keras").weights, plain.weights, strict=True):
        np.testing.assert_allclose(own.numpy(), whole.numpy(), rtol=1e-9, atol=1e-12, err_msg=whole.path)
    print(f"{schedule}: as one process with late weights", flush=True)


def convolved():
    """A layer for each stage, on sequences of any length."""
    keras.utils.set_random_seed(7)
    hidden = [keras.layers.Conv1D(4, 3, padding="same", name=f"c{at}") for at in range(stages - 1)]
    return keras.Sequential([keras.Input((None, 3)), *hidden, keras.layers.GlobalAveragePooling1D(name="mean")])


random = np.random.default_rng(2)
batches = [(random.normal(size=(5, length, 3)), random.normal(size=(5, 4))) for length in (6, 4, 6, 9, 4)]
plain = convolved()
plain.compile("sgd", "mse")
late_of = {id(one): DEEP[int(layer.name[1:])] for layer in plain.layers[:-1] for one in layer.trainable_variables}
losses = train_late(plain, late_of, batches, epochs=1, together=5)
specs = tf.TensorSpec([None, None, 3], tf.float64), tf.TensorSpec([None, 4], tf.float64)
with strategy_of("pipedream", 1, vertical_sync=False).scope():
    model = convolved()
    model.compile("sgd", "mse", steps_per_execution=5)
data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=specs)
np.testing.assert_allclose(model.fit(data, verbose=0).history["loss"], losses, rtol=1e-9)
print("pipedream: batches of several shapes", flush=True)
model.compile("sgd", "mse")
model.fit(*batches[0], verbose=0)  # the chief warns that nothing is gained

keras.config.set_floatx("float32")
with np.load(Path(__file__).parents[2] / "examples" / "data" / "mnist_10k.npz") as digits:
    for schedule, micro_batches, vertical_sync, _ in KINDS[::3] if "digits" in sys.argv else ():
        with strategy_of(schedule, micro_batches, vertical_sync).scope():
            model = digits_model()
            accuracy = digits_accuracy(model, digits, 16)
        assert accuracy > 0.85, (schedule, accuracy)
        print(f"{schedule}: learns the digits", flush=True)
