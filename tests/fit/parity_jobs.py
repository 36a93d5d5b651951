"""Runs training jobs in plain Keras: alone (Paceline not imported) or as a worker of a world of N.

    python parity_jobs.py DIRECTORY                          the reference
    paceline run --workers 2 parity_jobs.py DIRECTORY        the same jobs over two workers

Writes DIRECTORY/<job>.rank<r>.npz: final weights and history. `test_parity.py` compares.
"""

import gc
import os
import sys
import zlib
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
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


def main() -> None:
    directory = Path(sys.argv[1])
    rank = int(os.environ.get("PACELINE_RANK", "0"))
    world_size = int(os.environ.get("PACELINE_WORLD_SIZE", "1"))
    gc.set_threshold(20_000)  # tracing makes many objects that stay: Python would look through all of them for nothing
    for name in sys.argv[2:] or JOBS:
        function = JOBS[name]
        is_full = os.environ.get("PACELINE_PARITY") == "full" and function.worlds  # none: one process alone
        if world_size > 1 and world_size not in function.worlds and not is_full:
            continue
        keras.config.set_floatx(function.dtype)
        keras.utils.set_random_seed(zlib.crc32(name.encode()) % 1000)
        result = function()
        if result is None:
            (directory / f"{name}.absent").write_text(keras.__version__)
            continue
        weights = result["weights"] if "weights" in result else result["model"].get_weights()
        np.savez(
            directory / f"{name}.rank{rank}.npz",
            weights=np.concatenate([np.ravel(value) for value in weights]),
            **{f"history_{key}": np.asarray(value) for key, value in result["history"].items()},
        )
        del result
        keras.backend.clear_session()
        gc.freeze()  # what stays after a job: looked through again and again, it was a sixth of the time
        print(f"{name} done", flush=True)
    assert ("paceline" in sys.modules) == ("PACELINE_RANK" in os.environ)


if __name__ == "__main__":
    main()
