"""One run for a job: says so if the script opens a run of W&B or MLflow on every rank.

Every rank runs the whole script, and these services take each `wandb.init` or `mlflow.start_run` for a training of its
own. Nothing is changed: a run for each rank may be meant, and then is grouped, or has a parent.
"""

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from paceline.comm.world import World
from paceline.importing import after_import

_LOGGER = logging.getLogger("paceline")

_MESSAGE = (
    "each of the %d ranks runs this script, and this one has opened a run of %s, too: the job is several runs there, "
    "with the same numbers. Fix: %s (docs/trackers.md) [tracker-runs]"
)

_WANDB_FIX = 'write wandb.init(..., mode=None if paceline.is_chief() else "disabled")'
_MLFLOW_FIX = (
    "write `if paceline.is_chief():` before mlflow.start_run(), and before mlflow.autolog(log_models=False, "
    "log_datasets=False)"
)

_PARENT = "mlflow.parentRunId"


def tell_of_runs(world: World) -> None:
    """From now on rank 1 says if it opens a run: what it does the chief does, and rank 1 alone says so."""
    if world.rank != 1:
        return
    after_import("wandb", functools.partial(_watch_wandb, world))
    # Where every way to a new run ends: `start_run`, a metric that is logged without a run, autologging. A run that is
    # continued by its id is not created.
    after_import("mlflow.tracking.client", functools.partial(_watch_mlflow, world))


def _watch_wandb(world: World, wandb: ModuleType) -> None:
    def is_second(run: Any) -> bool:
        # In the mode "shared" several processes write into one run.
        return not (run.disabled or run.group or getattr(run.settings, "mode", "") == "shared")

    _tell_after(world, wandb, "init", is_second, ("W&B", _WANDB_FIX))


def _watch_mlflow(world: World, client: ModuleType) -> None:
    def is_second(run: Any) -> bool:
        return _PARENT not in run.data.tags

    _tell_after(world, client.MlflowClient, "create_run", is_second, ("MLflow", _MLFLOW_FIX))


def _tell_after(world: World, owner: Any, name: str, is_second: Callable[[Any], bool], words: tuple[str, str]) -> None:
    """Wraps `owner.name`, which returns a run, until it was said once."""
    open_run = getattr(owner, name, None)
    if open_run is None:  # another version of the package: nothing to say is better than an error
        return
    has_told = False

    @functools.wraps(open_run)
    def opened(*args: Any, **kwargs: Any) -> Any:
        nonlocal has_told
        run = open_run(*args, **kwargs)
        if not has_told and is_second(run):
            has_told = True
            _LOGGER.warning(_MESSAGE, world.size, *words)
        return run

    setattr(owner, name, opened)
