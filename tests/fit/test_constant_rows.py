"""A constant batch size in a model or a step: the error of shapes came from the user's own line, without a reason."""

from pathlib import Path

import pytest

from programs import run_workers

SCRIPT = Path(__file__).with_name("constant_rows.py")


@pytest.mark.processes
def test_errors_of_shapes_say_that_a_worker_has_a_part_of_the_rows(tmp_path: Path) -> None:
    ended = run_workers(2, SCRIPT, folder=tmp_path, limit_seconds=280)
    assert ended.code == 1
    for rank in (0, 1):
        for model in ("noisy", "Judge", "unrelated"):
            told = ended.lines(f"[{rank}] {model} fixed=")
            assert len(told) == 4, ended.output
            has_reason = [
                "ValueError: each of the 2 workers" in line and "of shape (16, 8), (16, 1), but" in line
                for line in told
            ]
            assert all(has_reason) if model != "unrelated" else not any(has_reason), told
            assert all(line.endswith("[rows]") for line in told) == (model != "unrelated"), told
    reported = [line for line in ended.output.splitlines() if "[rows]" in line and " fixed=" not in line]
    assert reported, "of the error that nobody caught"


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
model.fit(pairs, verbose=0)
print("trained")
"""


@pytest.mark.proof
@pytest.mark.processes
def test_a_job_whose_axis_0_is_shorter_than_its_workers_ends_with_the_reason(tmp_path: Path) -> None:
    """One worker had an anchor, one a positive, one nothing; the error spoke of a slice index."""
    (tmp_path / "pairs.py").write_text(_PAIRS_ON_THREE_WORKERS)
    ended = run_workers(3, "pairs.py", folder=tmp_path, limit_seconds=280)
    assert ended.code == 1, ended.output
    assert "trained" not in ended.output
    assert "train_step cannot be built for the part of one worker, of shape (" in ended.output
    assert any(line.startswith("ValueError: ") and line.endswith(" [rows]") for line in ended.output.splitlines())
