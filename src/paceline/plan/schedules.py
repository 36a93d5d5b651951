"""The schedules by name: where each puts the chunks, its order, how much it stashes and how old its weights are."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from paceline.plan import orders
from paceline.plan.shape import loop_places, vee_places


@dataclass(frozen=True)
class Place:
    """One stage of a pipeline: `stage` of `stages`, whose batches have so many `micro_batches`."""

    stage: int
    stages: int
    micro_batches: int


def _no_delay(place: Place) -> int:
    del place
    return 0


def _own_delay(place: Place) -> int:
    """PipeDream: forwards run stages - 1 - stage micro-batches ahead; so many batches are under way besides the own."""
    return -(-(place.stages - 1 - place.stage) // place.micro_batches)


def _first_stages_delay(place: Place) -> int:
    """Vertical sync: every stage uses the version that the first one used. It is the version before if there are at
    least as many micro-batches as stages: 2BW.
    """
    return _own_delay(Place(0, place.stages, place.micro_batches))


@dataclass(frozen=True)
class Schedule:
    """What distinguishes one schedule from the others.

    Args:
        name: As the user writes it.
        order: (stages, micro-batches of the whole plan) → each stage's order of computations, to be read once.
        most_stashed: The most micro-batches that a stage stashes in a long plan, counted for each of its chunks.
        places: Number of stages → the stage of each chunk.
        delay: How many updates the weights of a batch lack that one process would have made before it. The stage holds
            one version of its weights more than that.
        splits_backward: Whether W are computed apart from B.
        is_synchronous: Whether every batch sees all updates before it, so that the gradients are one process's.
        has_micro_batch_per_stage: Whether a batch has at least as many micro-batches as there are stages.
    """

    name: str
    order: Callable[[int, int], list[orders.Order]]
    most_stashed: Callable[[Place], int]
    places: Callable[[int], tuple[int, ...]] = loop_places
    delay: Callable[[Place], int] = _no_delay
    splits_backward: bool = False
    is_synchronous: bool = True
    has_micro_batch_per_stage: bool = False

    def fewest_micro_batches(self, stages: int) -> int:
        """That a batch has."""
        return stages if self.has_micro_batch_per_stage else 1


NAMES = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "pipedream", "pipedream_2bw")
"""All schedules."""


def schedule_named(name: str, *, chunks_per_stage: int = 2, vertical_sync: bool = False) -> Schedule:
    """The schedule of that name.

    Args:
        name: One of `NAMES`, or ``zb`` for ``zb_h1``.
        chunks_per_stage: Of `interleaved`; the others have their own number.
        vertical_sync: Of `pipedream`: a batch sees one version of the weights in all stages.

    Raises:
        ValueError: no such schedule.
    """
    asynchronous = partial(
        Schedule,
        order=orders.one_forward_one_backward,
        most_stashed=lambda place: place.stages - place.stage,
        is_synchronous=False,
    )
    match name:
        case "gpipe":
            return Schedule(name, orders.all_forward_then_backward, lambda place: place.micro_batches)
        case "1f1b":
            return Schedule(
                name,
                orders.one_forward_one_backward,
                lambda place: min(place.stages - place.stage, place.micro_batches),
            )
        case "interleaved":
            return Schedule(
                name,
                partial(orders.interleaved, chunks_per_stage=chunks_per_stage),
                lambda place: min(
                    (chunks_per_stage + 1) * place.stages - 1 - 2 * place.stage, chunks_per_stage * place.micro_batches
                ),
                places=partial(loop_places, chunks_per_stage=chunks_per_stage),
            )
        case "zb_h1" | "zb":
            return Schedule(
                "zb_h1",
                orders.zero_bubble_h1,
                lambda place: min(place.stages, place.micro_batches),
                splits_backward=True,
            )
        case "zb_v":
            return Schedule(
                name,
                orders.zero_bubble_vee,
                lambda place: 2 * min(place.stages, place.micro_batches),
                places=vee_places,
                splits_backward=True,
            )
        case "pipedream":
            return asynchronous(name, delay=_first_stages_delay if vertical_sync else _own_delay)
        case "pipedream_2bw":
            return asynchronous(name, delay=_first_stages_delay, has_micro_batch_per_stage=True)
    raise ValueError(
        f"received the schedule {name!r}; expected one of {', '.join(NAMES)}; for a PipelineStrategy also 'auto'. "
        "[pipeline]"
    )
