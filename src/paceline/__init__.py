"""Distributed training for Keras 3 on TensorFlow that works, exactly, fast, and through failures.

    import paceline

    strategy = paceline.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build_and_compile()
    model.fit(dataset, epochs=3)                      # paceline run --workers 4 train.py

Importing this package is free: no TensorFlow, no MPI, no change of the environment. Names resolve when first used.
Where TF_CONFIG is set, TensorFlow's devices get the name that they have in its cluster (`strategy/own_devices.py`).
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from paceline import callbacks as callbacks
    from paceline import data as data
    from paceline import events as events
    from paceline.evaluation.sidecar_evaluator import SidecarEvaluator as SidecarEvaluator
    from paceline.fit.chief_only import chief_only as chief_only
    from paceline.fit.explaining import explain as explain
    from paceline.fit.files.once import once as once
    from paceline.fit.files.once import once_per_host as once_per_host
    from paceline.fit.snapshots.training_state import TrainingState as TrainingState
    from paceline.fit.warmup import LearningRateWarmup as LearningRateWarmup
    from paceline.launching import launch as launch
    from paceline.ranks import is_chief as is_chief
    from paceline.ranks import local_rank as local_rank
    from paceline.ranks import rank as rank
    from paceline.ranks import scale_learning_rate as scale_learning_rate
    from paceline.ranks import world_size as world_size
    from paceline.spmd.rules.rule import register_rule as register_rule
    from paceline.strategy.mirrored import MirroredStrategy as MirroredStrategy
    from paceline.strategy.mirrored import OneDeviceStrategy as OneDeviceStrategy
    from paceline.strategy.multi_worker_mirrored import (
        MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
    )
    from paceline.strategy.parameter_server import ParameterServerStrategy as ParameterServerStrategy
    from paceline.strategy.pipeline import PipelineStrategy as PipelineStrategy

_HOMES = {
    "chief_only": "paceline.fit.chief_only",
    "explain": "paceline.fit.explaining",
    "launch": "paceline.launching",
    "is_chief": "paceline.ranks",
    "local_rank": "paceline.ranks",
    "once": "paceline.fit.files.once",
    "once_per_host": "paceline.fit.files.once",
    "rank": "paceline.ranks",
    "register_rule": "paceline.spmd.rules.rule",
    "scale_learning_rate": "paceline.ranks",
    "world_size": "paceline.ranks",
    "LearningRateWarmup": "paceline.fit.warmup",
    "MirroredStrategy": "paceline.strategy.mirrored",
    "MultiWorkerMirroredStrategy": "paceline.strategy.multi_worker_mirrored",
    "OneDeviceStrategy": "paceline.strategy.mirrored",
    "ParameterServerStrategy": "paceline.strategy.parameter_server",
    "PipelineStrategy": "paceline.strategy.pipeline",
    "SidecarEvaluator": "paceline.evaluation.sidecar_evaluator",
    "TrainingState": "paceline.fit.snapshots.training_state",
}
_NEED_SEAM = ("paceline.strategy.", "paceline.fit.snapshots.training_state", "paceline.evaluation.")

__all__ = ["__version__", "callbacks", "data", "events", *sorted(_HOMES)]


def _name_devices_with_tensorflow() -> None:
    """In a process with TF_CONFIG. In a launched one `bootstrap/worker.py` does so."""
    import os

    if "TF_CONFIG" not in os.environ:
        return
    from paceline.importing import after_import

    def name(tensorflow: Any) -> None:
        del tensorflow
        from paceline.strategy.own_devices import name_devices_by_hand

        name_devices_by_hand(os.environ)

    after_import("tensorflow", name)


_name_devices_with_tensorflow()


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name in ("callbacks", "data", "events"):
            import importlib

            return importlib.import_module(f"paceline.{name}")
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'paceline' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
        import importlib

        if home.startswith(_NEED_SEAM):
            import os

            from paceline.rendezvous.attaching import start_agent_early
            from paceline.seams.install import install_with_keras

            start_agent_early(os.environ)
            install_with_keras()
            # First TensorFlow: a worker's import hook on it imports the strategies, too, and must find them whole.
            importlib.import_module("tensorflow")
        return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
