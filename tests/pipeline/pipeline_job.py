"""``pipeline_job.py FOLDER SCHEDULE …``: two stages train, evaluate, predict and save, by these schedules or all.

Each rank compares with plain Keras. With four workers each stage has two replicas.
"""

import contextlib
import sys
from pathlib import Path

import keras
import numpy as np
from pipelined_models import JOBS, NUMBERS, TARGETS, check_equal, trained

import paceline

folder = Path(sys.argv[1])
keras.config.set_floatx("float64")
replicas = paceline.world_size() // 2
stage = paceline.rank() // replicas


def other_stages_variables(model: keras.Model) -> list[keras.Variable]:
    """Those that cannot be read here."""
    found = []
    for variable in model.trainable_variables:
        said = ""
        try:
            variable.numpy()
        except RuntimeError as error:
            said = str(error)
            found.append(variable)
        assert not said or (f"on stage {1 - stage}" in said and said.endswith("[other-stage]")), said
    return found


ALL = (
    ("gpipe", "skips", {"balance": [2, 4]}),
    ("1f1b", "skips", {"split_after": ["third"]}),
    ("auto", "skips", {"balance": "auto", "recompute": True}),
    ("zb_h1", "skips", {"balance": [1, 5]}),
    ("interleaved", "skips", {"balance": [1, 1, 1, 3]}),
    ("zb_v", "skips", {"balance": [1, 2, 1, 2]}),
)
OF_REPLICAS = (
    ("gpipe", "masked sequences", {}),  # looks rows up; metrics of rows that are not masked
    ("gpipe", "images", {}),
    ("1f1b", "skips", {"split_after": ["third"]}),
)

plain: dict[str, keras.Model] = {}
expected = {}
for schedule, name, options in ALL if replicas == 1 else OF_REPLICAS:
    if sys.argv[2:] and schedule not in sys.argv[2:]:
        continue
    job = JOBS[name]
    # In the last batch one of two replicas has no row.
    strategy = paceline.PipelineStrategy(stages=2, micro_batches=4 // replicas, schedule=schedule, **options)
    assert (strategy.stage, strategy.replica) == divmod(paceline.rank(), replicas)
    if name not in plain:
        plain[name], expected[name] = trained(job, contextlib.nullcontext())
    model, found = trained(job, strategy.scope())
    check_equal(found, expected[name])
    print(f"{schedule}: {name} as plain Keras", flush=True)


def normalized(scope):
    """The predictions of a model after two equal rows, one for each replica, and a batch of one row."""
    keras.utils.set_random_seed(5)
    with scope:
        small = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        )
        small.compile("sgd", "mse")
    rows = [0, 0, 1]
    small.fit(NUMBERS[rows], TARGETS[rows, :1], batch_size=2, shuffle=False, verbose=0)
    return small.predict(NUMBERS, verbose=0)


one_row = contextlib.nullcontext(), paceline.PipelineStrategy(stages=2, micro_batches=1).scope()
np.testing.assert_allclose(*map(normalized, one_row), rtol=1e-9, atol=1e-12)
print("BatchNormalization of one row")

elsewhere = other_stages_variables(model)
assert 0 < len(elsewhere) < len(model.trainable_variables)
print("other stages' variables cannot be read")

path = str(folder / "whole.keras")
model.save(path)
loaded = keras.models.load_model(path)
for own, whole in zip(loaded.weights, plain["skips"].weights, strict=True):
    np.testing.assert_allclose(own.numpy(), whole.numpy(), rtol=1e-9, atol=1e-12, err_msg=whole.path)
for own, whole in zip(loaded.optimizer.variables, plain["skips"].optimizer.variables, strict=True):
    np.testing.assert_allclose(own.numpy(), whole.numpy(), rtol=1e-9, atol=1e-12, err_msg=whole.path)
print("saved whole")

with strategy.scope():
    again = keras.models.load_model(path, compile=False)
np.testing.assert_allclose(
    again.predict(NUMBERS, verbose=0), plain["skips"].predict(NUMBERS, verbose=0), rtol=1e-9, atol=1e-12
)
assert other_stages_variables(again)
print("predicts from a file")


def fine_tuned() -> list[float]:
    """Trains the model of the file, first with a stage that has nothing to train, then with another loss."""
    keras.utils.set_random_seed(6)  # a file has no seeds
    model, found = keras.models.load_model(path, compile=False), []
    for trains, loss in ((False, "mae"), (True, "mse")):
        for name in ("first", "third", "fourth"):
            model.get_layer(name).trainable = trains
        model.compile(keras.optimizers.SGD(0.05, gradient_accumulation_steps=2), loss, metrics=["mae"])
        history = model.fit(job.x, job.y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
        found += [float(value) for name in sorted(history) for value in history[name]]
    return found


tuned_alone = fine_tuned()
with strategy.scope():
    np.testing.assert_allclose(fine_tuned(), tuned_alone, rtol=1e-9, atol=1e-12)
print("goes on after another compile")


def continued() -> list[float]:
    """Trains the model of the file with the optimizer that is in it."""
    keras.utils.set_random_seed(6)
    model = keras.models.load_model(path)
    history = model.fit(job.x, job.y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
    return [*history["loss"], *history["mae"], int(model.optimizer.iterations)]


continued_alone = continued()
with strategy.scope():
    np.testing.assert_allclose(continued(), continued_alone, rtol=1e-9, atol=1e-12)
print("goes on with the optimizer of a file")

# A norm over all stages needs gradients of all stages: all ranks are told so before the first step.
with paceline.PipelineStrategy(stages=2, micro_batches=2).scope():
    frozen = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, trainable=False), keras.layers.Dense(1)])
    frozen.compile(keras.optimizers.SGD(0.1, global_clipnorm=1.0), "mse")
refused = ""
try:
    frozen.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=8, verbose=0)
except ValueError as error:
    refused = str(error)
assert "has no weights to train" in refused, refused
assert int(frozen.optimizer.iterations) == 0

# All ranks must read the same batches: the first stage reads x, the last one y.
refused = ""
try:
    model.fit(job.x + paceline.rank(), job.y, batch_size=7, shuffle=False, verbose=0)
except RuntimeError as error:
    refused = str(error)
assert "[data-differ" in refused, refused
