"""Every private name of Keras 3 that Paceline replaces or calls, why, and a check at import that it is there.

Nothing else in Paceline may import `keras.src`. Tested with Keras 3.15; when an attribute below is missing in a newer
one, this file says which.

| name | why there is no public way |
|---|---|
| `losses.loss` (module) | its `scale_…`, `unscale_…`, `reduce_values`, `apply_mask` fix a loss's denominator |
| `BaseOptimizer.apply`, `LossScaleOptimizer.apply` | where gradients enter, before clipping and accumulation |
| `BaseOptimizer.build` | where an optimizer makes its slots, with the strategy that it remembers |
| `TensorFlowTrainer.__init__`, `.fit` | where a model learns its strategy; where a run begins |
| `TensorFlowTrainer._maybe_symbolic_build`, `._symbolic_build` | where a model is built before its first step |
| `TensorFlowTrainer._make_function` | where a step becomes a trainer's |
| `TensorFlowTrainer._get_metrics_result_or_logs` | where `fit` and `evaluate` read metrics |
| `backend.tensorflow.trainer.reduce_per_replica` | where `predict` puts the replicas' outputs together |
| `backend.tensorflow.trainer.TFEpochIterator` | where a dataset is handed to the strategy |
| `BackupAndRestore._save_model`, `ModelCheckpoint._save_model` | where callbacks write their files |
"""

from typing import Any

import keras
from keras.src.backend.tensorflow import trainer as trainer_module
from keras.src.losses import loss as loss_module
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

TensorFlowTrainer = trainer_module.TensorFlowTrainer

_REQUIRED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        loss_module,
        (
            "scale_loss_for_distribution",
            "unscale_loss_for_distribution",
            "reduce_values",
            "apply_mask",
            "squeeze_or_expand_to_same_rank",
        ),
    ),
    (BaseOptimizer, ("apply", "build")),
    (LossScaleOptimizer, ("apply",)),
    (
        TensorFlowTrainer,
        (
            "__init__",
            "fit",
            "_maybe_symbolic_build",
            "_symbolic_build",
            "_make_function",
            "_get_metrics_result_or_logs",
            "distribute_strategy",
        ),
    ),
    (trainer_module, ("reduce_per_replica", "TFEpochIterator")),
    (keras.callbacks.BackupAndRestore, ("_save_model",)),
    (keras.callbacks.ModelCheckpoint, ("_save_model",)),
)


def check() -> None:
    """Says at once which private name a new Keras no longer has.

    Raises:
        ImportError: Keras is not one that Paceline knows.
    """
    missing = [
        f"{getattr(owner, '__name__', owner)}.{name}"
        for owner, names in _REQUIRED
        for name in names
        if not hasattr(owner, name)
    ]
    if missing:
        raise ImportError(
            f"Paceline does not know Keras {keras.__version__}: it has no {', '.join(missing)}. Install a Keras that "
            "Paceline supports (3.10 to 3.15), or a newer Paceline."
        )


__all__ = [
    "BaseOptimizer",
    "LossScaleOptimizer",
    "TensorFlowTrainer",
    "check",
    "loss_module",
    "trainer_module",
]
