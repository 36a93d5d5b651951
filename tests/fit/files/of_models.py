"""Cases: `model.save`, `save_weights` and `export`, by all ranks, by some, to one path and to several."""

import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from files.ingredients import (
    NUM_WORKERS,
    RANK,
    ROWS,
    case,
    error_of,
    fit,
    flat,
    model_and_compile,
    shared_model,
    trained,
)

NUM_SAVES = 50 if NUM_WORKERS > 2 else 8
"""As `test_files.py` has it."""
_READER_SECONDS = 120.0


class _Renames:
    """Counts this rank's renames onto a path: what it has written."""

    def __init__(self) -> None:
        self._targets: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: Any) -> None:
        if event == "os.rename":
            self._targets.append(str(arguments[1]))

    def onto(self, path: Path) -> int:
        return self._targets.count(str(path))


_RENAMES = _Renames()


@case
def a_reader_loads_through_many_saves(directory: Path) -> Any:
    """Weights all alike, so that the reader sees a file that is put together from two saves."""
    model = model_and_compile()
    for number in range(NUM_SAVES):
        model.set_weights([np.full_like(value, number) for value in model.get_weights()])
        model.save(directory / "model.keras")
        model.save(directory / "model.h5")
        model.save_weights(directory / "w.weights.h5")
        model.save(directory / "unzipped", zipped=False)
        if number == 0:
            _await(directory / "reader_is_there")
    (directory / f"saved.rank{RANK}").touch()
    return [_RENAMES.onto(directory / name) for name in ("model.keras", "model.h5", "w.weights.h5")]


@case
def a_download_is_done_once(directory: Path) -> Any:
    """By `get_file` as Keras's datasets have it; without the internet."""
    origin = directory / "origin"
    if RANK == 0:
        origin.with_suffix(".half").write_bytes(bytes(100_000))
        origin.with_suffix(".half").rename(origin)
    _await(origin)
    get_file = keras.datasets.mnist.load_data.__globals__["get_file"]
    path = Path(get_file("digits.npz", origin=origin.as_uri(), cache_dir=directory, force_download=True))
    return [len(path.read_bytes()), path.name, get_file is keras.utils.get_file], _RENAMES.onto(path)


@case
def every_format_is_there_right_after_its_save(directory: Path) -> Any:
    model = model_and_compile()
    fit(model)
    loaded = {}
    for spelling in (keras.models.save_model, keras.saving.save_model, tf.keras.models.save_model):
        path = directory / f"{spelling.__module__}.{len(loaded)}.keras"
        spelling(model, str(path))
        loaded[path.name] = np.array_equal(flat(keras.models.load_model(path)), flat(model))
    for name, options in {
        "model.keras": {},
        "unzipped": {"zipped": False},
        "new/unzipped": {"zipped": False},
        "model.h5": {},  # the last: after it, Keras forgets the optimizer of what it saves
        "new/folder/model.h5": {},
    }.items():
        model.save(directory / name, **options)
        again = keras.models.load_model(directory / name)
        loaded[name] = np.array_equal(flat(again), flat(model)) and int(again.optimizer.iterations) == 4
    for name, options in {"w.weights.h5": {}, "shards.weights.json": {"max_shard_size": 4e-7}}.items():
        model.save_weights(directory / name, **options)
        again = model_and_compile()
        again.load_weights(directory / name)
        loaded[name] = np.array_equal(flat(again), flat(model))
    np.save(directory / f"predictions.rank{RANK}.npy", model(ROWS))
    return loaded


@case
def exports_serve_the_same(directory: Path) -> Any:
    model = trained()
    served = []
    for _ in range(2):
        model.export(directory / "exported", verbose=False)
        artifact = tf.saved_model.load(directory / "exported")
        served.append(bool(np.allclose(artifact.serve(ROWS), model(ROWS), atol=1e-6)))
    model.export(str(directory / "model.tflite"), format="litert", verbose=False)
    return [*served, (directory / "model.tflite").stat().st_size > 0]


@case
def each_save_is_written_by_one_rank(directory: Path) -> Any:
    model = shared_model()
    path = directory / "model.keras"
    for _ in range(5):
        fit(model)
        model.save(path)
        model.save(path)
    return _RENAMES.onto(path)


@case
def the_chief_alone_saves(directory: Path) -> Any:
    model = trained()
    path = directory / "model.keras"
    if RANK == 0:
        model.save(path)
        model.save(path)
    fit(model)
    model.save(path)
    newest = keras.models.load_model(path)
    return np.array_equal(flat(newest), flat(model)), int(newest.optimizer.iterations)


@case
def a_follower_alone_saves_after_all_have(directory: Path) -> Any:
    model = trained()
    path = directory / "model.keras"
    model.save(path)
    fit(model)
    if RANK == 1:
        model.save(path)
        assert int(keras.models.load_model(path).optimizer.iterations) == 8
    fit(model)
    return int(keras.models.load_model(path).optimizer.iterations)


@case
def a_loaded_model_trains_on(directory: Path) -> Any:
    trained().save(directory / "model.keras")
    model = keras.models.load_model(directory / "model.keras")
    fit(model)
    return int(model.optimizer.iterations)


@case
def each_rank_saves_to_its_own_path_as_the_tutorial_does(directory: Path) -> Any:
    model = trained()
    own = directory if RANK == 0 else directory / f"workertemp_{RANK}"
    tf.io.gfile.makedirs(str(own))
    model.save(own / "model.keras")
    model.save_weights(own / "w.weights.h5")
    found = (own / "model.keras").is_file() and (own / "w.weights.h5").is_file()
    if RANK > 0:
        tf.io.gfile.rmtree(str(own))
    fit(model)
    return found, int(keras.models.load_model(directory / "model.keras").optimizer.iterations)


@case
def weights_that_come_back_are_saved_again(directory: Path) -> Any:
    model = trained()
    model.save_weights(directory / "first.weights.h5")
    first = flat(model)
    for path in ("first", "last"):
        model.save_weights(directory / "kept.weights.h5")
        fit(model)
        model.save_weights(directory / "kept.weights.h5")
        model.load_weights(directory / "first.weights.h5")
        model.save_weights(directory / "kept.weights.h5")
        kept = model_and_compile()
        kept.load_weights(directory / "kept.weights.h5")
        assert np.array_equal(flat(kept), first), path
        fit(model)
    return True


@case
def faults_are_told_to_every_rank_that_saves(directory: Path) -> Any:
    model = trained()
    (directory / "taken.keras").mkdir(exist_ok=True)
    return {
        "missing": error_of(lambda: model.save(directory / "missing" / "model.keras")),
        "missing weights": error_of(lambda: model.save_weights(directory / "missing" / "w.weights.h5")),
        "read-only": error_of(lambda: model.save("/proc/model.keras")),
        "taken": error_of(lambda: model.save(directory / "taken.keras")),
        "extension": error_of(lambda: model.save(directory / "model.tar")),
        "after": error_of(lambda: model.save(directory / "model.keras")),
    }


def _await(path: Path) -> None:
    give_up_at = time.monotonic() + _READER_SECONDS
    while not path.exists():
        assert time.monotonic() < give_up_at, f"{path} never came"
        time.sleep(0.01)
