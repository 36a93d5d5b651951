"""``pipeline_job.py FOLDER``: two stages train, evaluate, predict and save; each rank compares with plain Keras."""

import contextlib
import sys
from pathlib import Path

import keras
import numpy as np
from pipelined_models import JOBS, NUMBERS, check_equal, trained

import paceline

folder = Path(sys.argv[1])
keras.config.set_floatx("float64")
job = JOBS["skips"]
rank = paceline.rank()


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
        assert not said or f"on stage {1 - rank}" in said, said
    return found


strategy = paceline.PipelineStrategy(stages=2, micro_batches=4, schedule="gpipe", split_after=["second"])
plain, expected = trained(job, contextlib.nullcontext())
for schedule, options in (
    ("gpipe", {"balance": [2, 4]}),
    ("1f1b", {"split_after": ["third"]}),
    ("zb_h1", {"balance": [1, 5]}),
    ("interleaved", {"balance": [1, 1, 1, 3]}),
    ("zb_v", {"balance": [1, 2, 1, 2]}),
):
    strategy = paceline.PipelineStrategy(stages=2, micro_batches=4, schedule=schedule, **options)
    model, found = trained(job, strategy.scope())
    check_equal(found, expected)
    print(f"{schedule} as plain Keras", flush=True)

elsewhere = other_stages_variables(model)
assert 0 < len(elsewhere) < len(model.trainable_variables)
print("other stages' variables cannot be read")

path = str(folder / "whole.keras")
model.save(path)
loaded = keras.models.load_model(path)
for own, whole in zip(loaded.weights, plain.weights, strict=True):
    np.testing.assert_allclose(own.numpy(), whole.numpy(), rtol=1e-9, atol=1e-12, err_msg=whole.path)
for own, whole in zip(loaded.optimizer.variables, plain.optimizer.variables, strict=True):
    np.testing.assert_allclose(own.numpy(), whole.numpy(), rtol=1e-9, atol=1e-12, err_msg=whole.path)
print("saved whole")

with strategy.scope():
    again = keras.models.load_model(path, compile=False)
np.testing.assert_allclose(again.predict(NUMBERS, verbose=0), plain.predict(NUMBERS, verbose=0), rtol=1e-9)
assert other_stages_variables(again)
print("predicts from a file")

with strategy.scope():
    again = keras.models.load_model(path)
refused = ""
try:
    again.fit(job.x, job.y, verbose=0)
except ValueError as error:
    refused = str(error)
assert "[pipeline]" in refused, refused
