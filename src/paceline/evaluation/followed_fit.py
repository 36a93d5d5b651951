"""`fit` in the process of an evaluator: it does not train, but evaluates `validation_data` with the workers' snapshots.

    the workers' fit   step ─ snapshot ─ step ─ snapshot ─ … ─ snapshot of the end    ranks end ─► launcher: SIGTERM
                                 ▼                 ▼                    ▼                                    ▼
    this fit           wait ─ restore, evaluate ─ restore, evaluate ─ … ─ a later fit has begun? return │ else exit 0

The k-th call of `fit` in the script follows the k-th call of the workers. What stands behind the last one in the script
is the workers' to do: this process ends within `fit`, so it saves and prints nothing a second time.
"""

import itertools
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import keras

from paceline.comm.world import current_world
from paceline.errors import ConfigurationError
from paceline.evaluation.evaluated_data import EvaluatedData
from paceline.evaluation.evaluation_log import LINES_FILE, EvaluationLog, folder_for
from paceline.evaluation.follower import Follower
from paceline.evaluation.snapshot_source import SnapshotSource
from paceline.evaluation.weight_source import Weights
from paceline.fit import compat
from paceline.fit.snapshots.resumable_fit import snapshot_options
from paceline.fit.sources.kinds import dataset_made, is_dataset_function
from paceline.resilience.job_end import job_has_ended

_LOGGER = logging.getLogger("paceline")


_calls = itertools.count()
"""Of `fit` in this process."""


def followed(model: Any, arguments: Mapping[str, Any]) -> Any:
    """A call of `fit` in an evaluator. Returns when a later `fit` has begun.

    Args:
        model: Whose method was called.
        arguments: Of the call, all of them.

    Raises:
        SystemExit: 0, because nothing is left to evaluate.
        ConfigurationError: there is nothing to follow, or nothing to evaluate.
    """
    fit_call = next(_calls)
    directory = _directory(arguments)
    source = SnapshotSource(directory, fit_call)
    launched = current_world().launched
    with EvaluationLog(folder_for(directory)) as log:
        data = EvaluatedData(
            model,
            _validation_data(arguments),
            arguments["validation_batch_size"] or arguments["batch_size"],
            arguments["validation_steps"],
        )
        _LOGGER.info("evaluates the snapshots in %s, and writes %s", directory, log.folder / LINES_FILE)

        def is_over(newest: Weights | None) -> bool:
            if source.later_fit_has_begun:
                return True
            # Without a launcher nobody says that the job has ended, but that it holds its directory no more.
            return not launched and newest is not None and newest.is_final

        last = Follower(source, model, data.evaluate, log, fit_call).follow(is_over, job_has_ended)
    if last is None:
        _LOGGER.warning("nothing was evaluated: %s has no snapshots of call %d of fit", directory, fit_call + 1)
    if not source.later_fit_has_begun:
        sys.exit(0)
    return _history_of(model)


def _directory(arguments: Mapping[str, Any]) -> str:
    wanted = snapshot_options(arguments["callbacks"], os.environ)
    if wanted is None:
        raise ConfigurationError(
            "this process is the evaluator of a job, but nothing says where the snapshots are that it should "
            "evaluate. Start it with --snapshot-dir FOLDER (or PACELINE_SNAPSHOT_DIR=FOLDER), the same as the "
            "workers. [evaluator]"
        )
    return wanted[0]


def _validation_data(arguments: Mapping[str, Any]) -> Any:
    given = arguments["validation_data"]
    if given is not None:
        return dataset_made(given, 1, 0) if is_dataset_function(given) else given
    if arguments["validation_split"]:
        arrays = arguments["x"], arguments["y"], arguments["sample_weight"]
        _, held_out = compat.train_validation_split(arrays, validation_split=arguments["validation_split"])
        return held_out
    raise ConfigurationError(
        "this process is the evaluator of a job, but `fit` was called without validation_data, so there is nothing "
        "to evaluate. Give fit(..., validation_data=...), or start the job without --evaluator. [evaluator]"
    )


def _history_of(model: Any) -> Any:
    """What the script gets: of an evaluator, no epochs."""
    history = keras.callbacks.History()
    history.set_model(model)
    history.on_train_begin()
    model.history = history
    return history
