"""A constant batch size in a model or a step, which each rank's rows did not fit."""

from pathlib import Path

import pytest

from programs import run_workers

SCRIPT = Path(__file__).with_name("constant_rows.py")


@pytest.mark.proof
@pytest.mark.processes
def test_a_constant_batch_size_trains_in_fit_and_is_explained_in_a_loop_of_replicas(tmp_path: Path) -> None:
    ended = run_workers(2, SCRIPT, folder=tmp_path, limit_seconds=280)
    assert ended.code == 1
    for rank in (0, 1):
        told = ended.lines(f"[{rank}] unrelated fixed=")
        assert len(told) >= 3, ended.output  # one rank may be ended in front of its last line
        assert not any(line.endswith("[rows]") for line in told), told
    for model in ("noisy", "Judge"):
        losses = [line.partition("loss ")[2] for line in ended.output.splitlines() if f"] {model} fixed=" in line]
        assert len(losses) == 2 * 4, ended.output
        assert len(set(losses)) == 1, "with and without a graph, and with batches of a known and an unknown size"
    reported = [line for line in ended.output.splitlines() if "ValueError: each of the 2 workers" in line]
    assert any(line.endswith("[rows]") for line in reported), ended.output


_PAIRS_ON_THREE_WORKERS = """
import keras, numpy as np, tensorflow as tf
class Model(keras.Model):
    def train_step(self, data):
        data = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data[0]) - self(data[1])) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}
inputs = keras.Input((6,))
model = Model(inputs, keras.layers.Dense(3)(inputs))
model.compile("sgd")
spec = tf.TensorSpec((None, 5, 6))
pairs = tf.data.Dataset.from_generator(lambda: iter(np.ones((4, 2, 5, 6))), output_signature=spec)
print("trained", model.fit(pairs, verbose=0).history["loss"][0])
"""


@pytest.mark.proof
@pytest.mark.processes
def test_a_job_whose_axis_0_is_shorter_than_its_workers_trains(tmp_path: Path) -> None:
    """One worker had an anchor, one a positive, one nothing."""
    (tmp_path / "pairs.py").write_text(_PAIRS_ON_THREE_WORKERS)
    ended = run_workers(3, "pairs.py", folder=tmp_path, limit_seconds=280)
    assert ended.code == 0, ended.output
    assert ended.output.count("trained 0.0") == 3, ended.output
