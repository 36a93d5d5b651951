"""Runs training jobs in plain Keras: alone (Paceline not imported) or as a worker of a world of N.

    python parity_jobs.py DIRECTORY JOB …                          the reference
    paceline run --workers 2 parity_jobs.py DIRECTORY JOB …        the same jobs over two workers

Writes DIRECTORY/<job>.rank<r>.npz: final weights and history. `test_parity.py` compares, and runs the jobs one by one.
"""

import os
import sys
import zlib
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import rotating_shares
from parity import (  # noqa: F401  # they register their jobs
    in_float32,
    of_data,
    of_every_optimizer,
    of_layers,
    of_losses,
    of_metrics,
    of_optimizers,
    of_own_gradients,
    of_steps,
    of_trainers,
)
from parity.registry import JOBS

RANK = int(os.environ.get("PACELINE_RANK", "0"))


def run_case(name: str, directory: str, stages: str = "", micro_batches: str = "", schedule: str = "") -> str:
    """Runs a job, and leaves its weights and history in `directory`; with `stages`, in a pipeline.

    Returns:
        Why a pipeline cannot train it, in the words of the refusal.
    """
    if os.environ.get("PACELINE_SHARES") == "auto":
        rotating_shares.rotate(every=2)
    function = JOBS[name]
    keras.config.set_floatx(function.dtype)
    keras.utils.set_random_seed(zlib.crc32(name.encode()) % 1000)
    if stages:
        import paceline

        strategy = paceline.PipelineStrategy(int(stages), int(micro_batches), schedule)
        try:
            with strategy.scope():
                result = function()
        except paceline.errors.ConfigurationError as refused:
            return str(refused)
    else:
        result = function()
    if result is None:
        (Path(directory) / f"{name}.absent").write_text(keras.__version__)
        return ""
    weights = result["weights"] if "weights" in result else result["model"].get_weights()
    np.savez(
        Path(directory) / f"{name}.rank{RANK}.npz",
        weights=np.concatenate([np.ravel(_here(value)) for value in weights]),
        **{f"history_{key}": np.asarray(value) for key, value in result["history"].items()},
    )
    return ""


def _here(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except RuntimeError as error:
        if "[other-stage]" not in str(error):
            raise
        return np.full(value.shape, np.nan, value.dtype if "float" in str(value.dtype) else "float64")


if __name__ == "__main__":
    for job in sys.argv[2:]:
        run_case(job, sys.argv[1])
        keras.backend.clear_session()
    assert ("paceline" in sys.modules) == ("PACELINE_RANK" in os.environ)
