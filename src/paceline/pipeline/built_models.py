"""Builds what a pipeline needs before its first step, from the shapes of the data: layers, optimizer, metrics."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from paceline.comm.group import Group
from paceline.fit.building import is_due, share_values
from paceline.fit.metrics import read_as_they_are, read_by
from paceline.pipeline.common_failures import raised_on_all
from paceline.pipeline.pipelined_model import pipelined
from paceline.pipeline.refused_models import refuse, refuse_data
from paceline.pipeline.stage_optimizers import build_for_stage
from paceline.plan.refusals import refuse as refuse_numbers


def build(model: Any, specs: Any, batch_rows: int | None, *, is_fitted: bool, is_run: bool) -> None:
    """Divides a model, and builds the optimizer for this stage's weights, and metrics. All ranks call it alike.

    Args:
        model: Compiled.
        specs: Of the data.
        batch_rows: Of all batches but the last one; None: nobody knows.
        is_fitted: Whether it is trained on these data.
        is_run: Whether a `fit` or `evaluate` begins: the script may have changed values since the one before it.

    Raises:
        ConfigurationError: a pipeline cannot train this model.
        RuntimeError: building has failed on another rank; there the exception itself is raised.
    """
    refuse(model)
    refuse_data(specs)
    strategy = model.distribute_strategy
    refuse_numbers(
        None,
        strategy.stages,
        strategy.micro_batches,
        batch_rows=batch_rows if is_fitted else None,
        world_size=strategy.world.size,
    )
    with strategy.scope():
        if not model.built:
            x, _, _ = keras.utils.unpack_x_y_sample_weight(specs)
            with raised_on_all(strategy.fit_group):
                model.build(keras.tree.map_structure(lambda leaf: tuple(leaf.shape), x))
        pipeline = pipelined(model, batch_rows)
        with raised_on_all(strategy.fit_group):
            build_for_stage(model, pipeline.trained)
            with read_as_they_are():
                model._symbolic_build(data_batch=specs)
    for metric in model.metrics:
        if metric is not model._loss_tracker:  # that one is the same on all ranks
            for one in (metric, *getattr(metric, "metrics", ())):
                read_by(one, functools.partial(_of_last_stage, strategy.pipeline, pipeline.has_outputs))
    if is_due(model, each_time=is_run):
        if strategy.replicas > 1:
            share_values(_known_here(model), strategy.stage_group)
        pipeline.shared_weights.share()


def _of_last_stage(pipeline: Group, is_here: bool, variables: Sequence[Any]) -> list[Any]:
    """The values of a metric's variables, which the last stage alone has updated. Collective over the stages."""
    own = [np.asarray(variable.numpy()) for variable in variables]
    return pipeline.all_reduce(own if is_here else [np.zeros_like(value) for value in own])


def _known_here(model: Any) -> list[Any]:
    """The variables of this stage, and what the optimizer has for them."""
    optimizer = getattr(model, "optimizer", None)
    held = [] if optimizer is None else optimizer.variables
    return list({id(variable): variable for variable in (*pipelined(model).variables, *held)}.values())
