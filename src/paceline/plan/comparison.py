"""The schedules beside each other: for each the best split, its plan, the predicted step and memory; and the best."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from paceline.errors import ConfigurationError
from paceline.plan.byte_text import byte_text
from paceline.plan.costs import Link
from paceline.plan.memory import Peak, peaks_of
from paceline.plan.partition import Demand, best_split
from paceline.plan.planning import Outline
from paceline.plan.profile import Profile
from paceline.plan.schedules import Schedule
from paceline.plan.simulation import Timeline, simulate
from paceline.plan.split import Split, costs_of


@dataclass(frozen=True)
class Pipeline:
    """What is planned.

    Args:
        profile: The layers, with their costs for one micro-batch.
        stages: Places in the pipeline.
        micro_batches: Of one batch.
        replicas: Of every stage.
        link: Between two workers.
        memory_limit_bytes: Of each worker.
        recompute: Whether a chunk keeps only its inputs until its backward.
        cuts: Number of chunks → the cuts that the user gives (see `split.py`); None: the best ones.
    """

    profile: Profile
    stages: int
    micro_batches: int
    replicas: int = 1
    link: Link = field(default_factory=Link)
    memory_limit_bytes: float = math.inf
    recompute: bool = False
    cuts: Callable[[int], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Prediction:
    """What one schedule makes of a pipeline: what is to be expected of each worker."""

    schedule: Schedule
    split: Split
    timeline: Timeline
    peaks: tuple[Peak, ...]

    @property
    def step_seconds(self) -> float:
        """Of a batch; see `Timeline.step_seconds`."""
        return self.timeline.step_seconds


@dataclass(frozen=True)
class Comparison:
    """The schedules beside each other.

    Args:
        predictions: Of the schedules that can be used, the fastest first.
        refusals: By the names of the others: why not.
    """

    predictions: tuple[Prediction, ...]
    refusals: dict[str, str]

    @property
    def fastest_synchronous(self) -> Prediction | None:
        """Of those that give one process's gradients; None: none of them can be used."""
        return next((one for one in self.predictions if one.schedule.is_synchronous), None)

    def best(self) -> Prediction:
        """What `schedule="auto"` takes: the fastest synchronous one.

        Raises:
            ConfigurationError: none can be used; says why not, for each.
        """
        if found := self.fastest_synchronous:
            return found
        reasons = "; ".join(f"{name}: {why}" for name, why in self.refusals.items())
        raise ConfigurationError(f"no synchronous schedule can be used. {reasons} [pipeline]")


def predict(pipeline: Pipeline, schedule: Schedule) -> Prediction:
    """What `schedule` makes of a pipeline.

    Raises:
        ConfigurationError: it cannot be used: too little memory, layers or micro-batches.
    """
    if pipeline.micro_batches < (fewest := schedule.fewest_micro_batches(pipeline.stages)):
        raise ConfigurationError(
            f"{schedule.name} needs {fewest} micro-batches for {pipeline.stages} stages, not {pipeline.micro_batches}. "
            "[pipeline]"
        )
    pipeline = replace(pipeline, profile=pipeline.profile.under(schedule))
    split = _split(pipeline, schedule)
    costs = costs_of(pipeline.profile, split, pipeline.link, schedule.places(pipeline.stages))
    # Every stage is full, and holds the most, after the batches that are in flight and one more.
    fills = 1 if schedule.is_synchronous else 1 + -(-pipeline.stages // pipeline.micro_batches)
    edges = tuple(costs.edge_bytes)
    outline = Outline(schedule, pipeline.stages, pipeline.micro_batches, fills, edges, pipeline.recompute)
    peaks = peaks_of(outline, costs)
    most = max(peak.total_bytes for peak in peaks)
    if most > pipeline.memory_limit_bytes:
        raise ConfigurationError(
            f"{schedule.name} holds {byte_text(most)} on one worker, and the limit is "
            f'{byte_text(pipeline.memory_limit_bytes)}: give memory_limit="{math.ceil(most / 1e6)}MB". [pipeline]'
        )
    if not schedule.is_synchronous:
        outline = replace(outline, batches=4 * fills)  # full for more than half of the plan
    return Prediction(schedule, split, simulate(outline, costs), peaks)


def _split(pipeline: Pipeline, schedule: Schedule) -> Split:
    if pipeline.cuts:
        return Split(pipeline.cuts(len(schedule.places(pipeline.stages))), pipeline.replicas)
    demand = Demand(
        pipeline.profile,
        schedule,
        pipeline.stages,
        pipeline.micro_batches,
        pipeline.link,
        pipeline.recompute,
        pipeline.memory_limit_bytes,
        pipeline.replicas,
    )
    return best_split(demand)[1]


def compare(pipeline: Pipeline, schedules: Iterable[Schedule]) -> Comparison:
    """Every schedule's prediction, or why it cannot be used."""
    predictions: list[Prediction] = []
    refusals: dict[str, str] = {}
    for schedule in schedules:
        try:
            predictions.append(predict(pipeline, schedule))
        except ConfigurationError as refusal:
            refusals[schedule.name] = str(refusal).removesuffix(" [pipeline]")
    return Comparison(tuple(sorted(predictions, key=lambda one: one.step_seconds)), refusals)
