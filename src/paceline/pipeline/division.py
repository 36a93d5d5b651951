"""Where a model is cut, and under which schedule: as the strategy says, or as measured layers make the fastest step."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.errors import ConfigurationError
from paceline.pipeline.link_cost import link_of
from paceline.pipeline.model_layers import ModelLayers, layers_of
from paceline.pipeline.model_profile import profile_of
from paceline.plan.comparison import Pipeline, Prediction, compare, predict
from paceline.plan.partition import least_greatest
from paceline.plan.profile import WHY_TIED, Layer, Profile
from paceline.plan.refusals import refuse
from paceline.plan.schedules import NAMES, Schedule, schedule_named
from paceline.plan.simulation import Timeline
from paceline.plan.split import cuts_of_balance, cuts_of_names
from paceline.strategy.pipeline import PipelineStrategy

_LOGGER = logging.getLogger("paceline")

_USUAL_ROWS = 32
"""Of a batch, where nobody knows."""

_MUCH_WAITING = 0.5
"""The share of a step from which on a pipeline gains little or nothing over one process."""


@dataclass(frozen=True)
class Division:
    """A model divided.

    Args:
        layers: The model's.
        schedule: That it is trained under.
        cuts: Each chunk ends behind so many layers.
        expected: How a step is expected to go; None: layers were not measured.
    """

    layers: ModelLayers
    schedule: Schedule
    cuts: tuple[int, ...]
    expected: Timeline | None = None


def division_of(model: Any, strategy: PipelineStrategy, batch_rows: int | None) -> Division:
    """Divides a model. Collective over all ranks if layers are measured; all get the same.

    Args:
        model: Built; its variables need no values.
        strategy: Its.
        batch_rows: Of the batches that are about to come; None: not known.

    Raises:
        ConfigurationError: the model cannot be divided as the strategy says.
    """
    layers = layers_of(model)
    num_layers = len(layers.layers)
    refuse(
        strategy.asked,
        strategy.stages,
        strategy.micro_batches,
        num_layers=num_layers,
        world_size=strategy.world.size,
    )
    alike = tuple(Layer(one.name, 0.0, 0.0, 0.0, one.reads) for one in layers.layers)
    names = Profile(alike, layers.ties, layers.sharing).under(strategy.asked)
    by_hand = _by_hand(names, strategy)
    if strategy.is_measured:
        found = _measured(model, strategy, batch_rows or _USUAL_ROWS, by_hand)
        return Division(layers, found.schedule, found.split.cuts, found.timeline)
    schedule = strategy.asked
    assert schedule is not None  # without one, layers are measured
    num_chunks = len(schedule.places(strategy.stages))
    return Division(layers, schedule, by_hand(num_chunks) if by_hand else _even_cuts(names, num_chunks))


def _by_hand(names: Profile, strategy: PipelineStrategy) -> Callable[[int], tuple[int, ...]] | None:
    """From the number of chunks to the cuts that the script gives."""
    balance, split_after = strategy.balance, strategy.split_after
    if isinstance(balance, list):
        return lambda num_chunks: cuts_of_balance(names, balance, num_chunks)
    if split_after is not None:
        return lambda num_chunks: cuts_of_names(names, split_after, num_chunks)
    return None


def _even_cuts(names: Profile, num_chunks: int) -> tuple[int, ...]:
    found = least_greatest(names.cuts, num_chunks, lambda _, first, last: last - first)
    if found is None:
        raise ConfigurationError(
            f"The model has no {num_chunks - 1} places between its layers where it may be cut, because layers belong "
            f"together: {names.told_ties}. {WHY_TIED} Ask for fewer stages. [pipeline]"
        )
    return found[1]


def _measured(model: Any, strategy: PipelineStrategy, batch_rows: int, by_hand: Any) -> Prediction:
    rows = max(1, batch_rows // (strategy.micro_batches * strategy.replicas))
    profile = profile_of(model, rows, strategy.fit_group)
    pipeline = Pipeline(
        profile,
        strategy.stages,
        strategy.micro_batches,
        link=link_of(strategy.fit_group),
        memory_limit_bytes=strategy.memory_limit_bytes or math.inf,
        recompute=strategy.recompute,
        cuts=by_hand,
    )
    if strategy.asked is None:
        found = compare(pipeline, [one for one in map(schedule_named, NAMES) if one.is_synchronous]).best()
    else:
        found = predict(pipeline, strategy.asked)
    if strategy.world.is_chief:
        _LOGGER.info(
            "pipeline: schedule=%r, balance=%s; a step is expected to take %.3g s, of which stages wait %.0f %%, and a "
            "worker to hold %.1f MB",
            found.schedule.name,
            [len(chunk) for chunk in found.split.chunks],
            found.step_seconds,
            100 * found.timeline.bubble,
            max(peak.total_bytes for peak in found.peaks) / 1e6,
        )
        if found.timeline.bubble > _MUCH_WAITING:
            _LOGGER.warning(
                "pipeline: stages will wait for most of each step: the layers compute too little for %d stages and "
                "%d micro-batches. Larger batches, more micro-batches or fewer stages help; if the model fits into "
                "one worker, a MirroredStrategy divides the rows instead.",
                strategy.stages,
                strategy.micro_batches,
            )
    return found
