"""Which numerics of Keras and TensorFlow are patched where a script calls `fit`, and where it has a loop of its own."""

import json
from pathlib import Path

import pytest

from programs import Ended, run_workers

JOB = Path(__file__).with_name("patched_numerics_job.py")

ALWAYS = {
    "notes for loops of a user's own, and refusals; an update as loops": {
        "BaseOptimizer.apply",
        "BaseOptimizer.build",
        "GradientTape.gradient",
        "LossScaleOptimizer.apply",
        "Mean.result",
        "Mean.update_state",
        "MeanMetricWrapper.update_state",
        "Metric.__init__",
    },
    "--batch-statistics local": {"BatchNormalization.call"},
    "a strategy leaves Keras's variables plain": {"Variable._initialize"},
    "a layer's weights remember what they will need in loops with `strategy.run`": {"Layer.add_weight"},
}
"""None of these changes a number of a step of replicas. What parameter servers and pipelines need is not there."""

OF_LOOPS = {
    "BaseOptimizer._clip_gradients",
    "BatchNormalization.call",
    "Function.__call__",
    "Loss.__call__",
    "Mean.update_state",
    "TensorFlowTrainer._aggregate_additional_loss",
    "TensorFlowTrainer.compute_loss",
    "Variable.assign",
    "Variable.assign_add",
    "Variable.assign_sub",
    "loss.apply_mask",
    "loss.reduce_values",
    "loss.scale_loss_for_distribution",
    "loss.unscale_loss_for_distribution",
    "random._cast_seed",
    "random.beta",
    "random.binomial",
    "random.categorical",
    "random.dropout",
    "random.gamma",
    "random.normal",
    "random.randint",
    "random.truncated_normal",
    "random.uniform",
}
"""By files of `fit/replica_loops/` and `strategy/nested_functions.py`: only where a script calls `strategy.run`."""
OF_CALLS = ("Model.", "Trainer.", "TensorFlowTrainer.")
"""Methods of models: where calls begin, no numerics."""


def _told(ended: Ended) -> dict[str, list[str]]:
    assert ended.code == 0, ended.output
    [line] = ended.lines("[0] patched ")
    told: dict[str, list[str]] = json.loads(line.removeprefix("[0] patched "))
    return told


@pytest.mark.processes
def test_numerics_are_patched_for_loops_with_strategy_run_only(tmp_path: Path) -> None:
    told = _told(run_workers(2, JOB, "fit_then_loop", folder=tmp_path))
    patched = {name for name in told["fit"] if not name.startswith(OF_CALLS)}
    assert patched == set().union(*ALWAYS.values())
    assert told["loops in fit"] == []
    assert set(told["loops"]) == OF_LOOPS


@pytest.mark.proof
@pytest.mark.processes
def test_a_step_that_is_traced_to_build_a_resumed_model_is_no_loop(tmp_path: Path) -> None:
    """The step of a model that nothing else builds was traced in `strategy.run`, as a loop of the script's own is."""
    options = ("--max-restarts", "1", "--snapshot-dir", "snapshots", "--snapshot-every", "1")
    ended = run_workers(2, *options, JOB, "resumed_fit", folder=tmp_path)
    assert "resuming from the snapshot of step " in ended.output, ended.output
    assert _told(ended)["loops"] == []
