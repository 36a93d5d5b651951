"""`SidecarEvaluator` on each kind of directory; what is half-written, pruned, or there before it starts."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline
from paceline.evaluation.snapshot_source import SnapshotSource
from paceline.evaluation.weight_source import NotReadableError
from programs import run_python

ROWS = np.random.default_rng(0).normal(size=(64, 6)).astype("float32")
LABELS = (ROWS.sum(axis=1) > 0).astype("int32")
STEPS_OF_EPOCH = 4


def compiled(num_units: int = 8) -> Any:
    hidden = [keras.layers.Dense(num_units, "relu"), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((6,)), *hidden, keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def held_out() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((ROWS, LABELS)).batch(10)


def lines_in(directory: Path) -> list[dict[str, Any]]:
    path = directory / "evaluator" / "evaluations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trained(*callbacks: Any, epochs: int = 3) -> tuple[Any, dict[str, float]]:
    model = compiled()
    model.fit(ROWS, LABELS, batch_size=16, epochs=epochs, verbose=0, callbacks=callbacks)
    return model, model.evaluate(held_out(), verbose=0, return_dict=True)


def check_line(line: dict[str, Any], step: int, name: str, metrics: dict[str, float]) -> None:
    assert (line["step"], line["name"]) == (step, name)
    assert line["metrics"] == pytest.approx(metrics, abs=1e-6)


def test_files_of_model_checkpoint(tmp_path: Path) -> None:
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "model-{epoch}.keras")
    _, metrics = trained(checkpoint)
    paceline.SidecarEvaluator(compiled(), held_out(), tmp_path, max_evaluations=3).start()
    [line] = lines_in(tmp_path)  # it comes late: the newest is evaluated, and those before are not
    check_line(line, 3 * STEPS_OF_EPOCH, "model-3.keras", metrics)


def test_files_of_weights_and_arrays(tmp_path: Path) -> None:
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch:02d}.weights.h5", save_weights_only=True)
    _, metrics = trained(checkpoint)
    paceline.SidecarEvaluator(compiled(), (ROWS, LABELS), tmp_path, max_evaluations=3).start()
    [line] = lines_in(tmp_path)
    check_line(line, 3, "03.weights.h5", metrics)  # the file does not say after how many steps


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_training_checkpoints(tmp_path: Path, with_optimizer: bool) -> None:
    model, metrics = trained()
    parts = {"model": model, "optimizer": model.optimizer} if with_optimizer else {"model": model}
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(**parts), str(tmp_path), max_to_keep=2)
    for _ in range(3):
        manager.save()
    writes = keras.callbacks.TensorBoard(tmp_path / "board")
    paceline.SidecarEvaluator(compiled(), held_out(), str(tmp_path), max_evaluations=3, callbacks=[writes]).start()
    [line] = lines_in(tmp_path)
    check_line(line, 3 * STEPS_OF_EPOCH, "ckpt-3", metrics)  # a compiled model has its optimizer with it
    for folder in ("evaluator", "board/validation"):
        [file] = (tmp_path / folder).glob("events.out.tfevents.*")
        events = [event for event in tf.compat.v1.train.summary_iterator(str(file)) if event.summary.value]
        found = {(event.summary.value[0].tag, event.step) for event in events}
        names = {f"evaluation_{name}_vs_iterations" for name in metrics}
        assert found == {(name, line["step"]) for name in names}


def test_a_checkpoint_of_another_model(tmp_path: Path) -> None:
    tf.train.CheckpointManager(tf.train.Checkpoint(model=keras.Sequential()), str(tmp_path), max_to_keep=2).save()
    with pytest.raises(ValueError, match=r"ckpt-1 has no values for .*kernel.* \[evaluator\]"):
        paceline.SidecarEvaluator(compiled(), held_out(), tmp_path, max_evaluations=1).start()


TRAINS = """
import keras, numpy as np
from paceline.callbacks import Snapshot
rows = np.random.default_rng(0).normal(size=(64, 6)).astype("float32")
hidden = [keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization()]
model = keras.Sequential([keras.Input((6,)), *hidden, keras.layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
data = rows, (rows.sum(axis=1) > 0).astype("int32")
model.fit(*data, batch_size=16, epochs=3, verbose=0, callbacks=[Snapshot("snapshots", every_steps=4, keep=9)])
print("METRICS", model.evaluate(*data, verbose=0))
"""


@pytest.mark.processes
def test_snapshots_of_a_job_that_has_ended(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TRAINS)
    ended = run_python(script, folder=tmp_path, limit_seconds=400)
    assert ended.code == 0, ended.output
    loss, accuracy = json.loads(ended.output.partition("METRICS ")[2].partition("\n")[0])
    directory = tmp_path / "snapshots"
    paceline.SidecarEvaluator(compiled(), held_out(), directory).start()  # nothing follows, so this one ends
    [line] = lines_in(directory)
    check_line(line, 3 * STEPS_OF_EPOCH, line["name"], {"loss": loss, "accuracy": accuracy})
    assert line["epoch"] == 2
    paceline.SidecarEvaluator(compiled(), held_out(), directory).start()
    assert lines_in(directory) == [line], "what has its line is not evaluated again"

    # Retention deletes a snapshot that an evaluator has seen, before the evaluator reads it.
    source, model = SnapshotSource(str(directory)), compiled()
    newest, before, *_ = source.found()
    shutil.rmtree(directory / newest.name)
    with pytest.raises(NotReadableError):
        source.load(newest, model)
    # Which step: a snapshot is left out while another one is written.
    assert before.name == f"step-{source.load(before, model).step:012}"


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs a function in another thread, which has ended when the test has."""
    threads: list[threading.Thread] = []

    def run(function: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=function))
        threads[-1].start()

    yield run
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_half_a_file_is_not_read_until_it_is_whole(tmp_path: Path, beside: Callable[..., None]) -> None:
    model, metrics = trained()
    whole = tmp_path / "whole"
    whole.mkdir()
    model.save(whole / "model-7.keras")
    data = (whole / "model-7.keras").read_bytes()
    directory = tmp_path / "files"
    directory.mkdir()
    compiled().save(directory / "model-1.keras")
    (directory / "model-7.keras").write_bytes(data[: len(data) // 2])

    def write_the_rest() -> None:
        give_up_at = time.monotonic() + 100
        while not lines_in(directory) and time.monotonic() < give_up_at:
            time.sleep(0.05)
        with (directory / "model-7.keras").open("ab") as file:
            file.write(data[len(data) // 2 :])

    beside(write_the_rest)
    paceline.SidecarEvaluator(compiled(), held_out(), directory, max_evaluations=7).start()
    first, last = lines_in(directory)
    assert first["name"] == "model-1.keras"
    check_line(last, 3 * STEPS_OF_EPOCH, "model-7.keras", metrics)


def test_the_script_of_a_cluster_with_parameter_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the task `evaluator` of TF_CONFIG, which connects to no server."""
    _, metrics = trained(keras.callbacks.ModelCheckpoint(tmp_path / "model-{epoch}.keras"))
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
    strategy = paceline.ParameterServerStrategy(max_staleness=1)
    assert strategy.num_replicas_in_sync == 1
    with strategy.scope():
        model = compiled()
    paceline.SidecarEvaluator(model, held_out(), tmp_path, max_evaluations=3).start()
    [line] = lines_in(tmp_path)
    check_line(line, 3 * STEPS_OF_EPOCH, "model-3.keras", metrics)
    assert not paceline.is_chief()
