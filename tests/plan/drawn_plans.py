"""Plans, costs and models that hypothesis draws, and the costs of the papers' drawings."""

import math

from hypothesis import strategies as st

from paceline.plan.actions import Plan
from paceline.plan.costs import ChunkCost, Costs, GradientSum, Link
from paceline.plan.planning import Outline, make_plan
from paceline.plan.profile import Layer, Profile
from paceline.plan.schedules import NAMES, Schedule, schedule_named
from paceline.plan.shape import chain

SECONDS = st.integers(1, 20).map(float)
"""Sums of them are exact."""


@st.composite
def schedules(draw: st.DrawFn, names: tuple[str, ...] = NAMES) -> Schedule:
    name = draw(st.sampled_from(names))
    return schedule_named(name, chunks_per_stage=draw(st.integers(1, 3)), vertical_sync=draw(st.booleans()))


@st.composite
def edges(draw: st.DrawFn, num_chunks: int) -> tuple[tuple[int, int], ...]:
    """Each chunk reads from the one before, or (rarely) not; and some read from others."""
    pairs = [(source, target) for target in range(num_chunks) for source in range(target)]
    skips = draw(st.sets(st.sampled_from(pairs), max_size=4)) if pairs else set()
    return chain(num_chunks, skips) if draw(st.integers(0, 4)) else tuple(sorted(skips))


@st.composite
def outlines(draw: st.DrawFn, names: tuple[str, ...] = NAMES, max_stages: int = 5) -> Outline:
    schedule = draw(schedules(names))
    stages = draw(st.integers(1, max_stages))
    return Outline(
        schedule,
        stages,
        draw(st.integers(schedule.fewest_micro_batches(stages), 9)),
        batches=1 if schedule.is_synchronous else draw(st.integers(1, 5)),
        edges=draw(edges(len(schedule.places(stages)))),
        recompute=draw(st.booleans()),
    )


def plan_of(outline: Outline) -> Plan:
    return make_plan(
        outline.schedule,
        outline.stages,
        outline.micro_batches,
        batches=outline.batches,
        edges=outline.edges,
        recompute=outline.recompute,
    )


def plans(names: tuple[str, ...] = NAMES, max_stages: int = 5) -> st.SearchStrategy[Plan]:
    return outlines(names, max_stages).map(plan_of)


@st.composite
def costs(draw: st.DrawFn, outline: Outline) -> Costs:
    chunks = st.builds(
        ChunkCost,
        *(SECONDS, SECONDS, SECONDS),
        update_seconds=SECONDS,
        input_bytes=st.integers(0, 3),
        stash_bytes=st.integers(3, 9),
        weights_stash_bytes=st.integers(0, 9),
        parameter_bytes=st.integers(0, 9),
        slot_bytes=st.integers(0, 9),
    )
    return Costs(
        tuple(draw(chunks) for _ in range(outline.shape.num_chunks)),
        {edge: draw(st.integers(0, 5)) for edge in outline.shape.edges},
        Link(float(draw(st.integers(0, 3))), draw(st.sampled_from([0.5, 1.0, 4.0, math.inf]))),
        tuple(draw(st.lists(gradient_sums(outline.stages), max_size=2)) if outline.schedule.is_synchronous else ()),
    )


def gradient_sums(stages: int) -> st.SearchStrategy[GradientSum]:
    some = st.sets(st.integers(0, stages - 1), min_size=1).map(lambda found: tuple(sorted(found)))
    return st.builds(GradientSum, some, SECONDS)


@st.composite
def profiles(draw: st.DrawFn, max_layers: int = 7) -> Profile:
    layers = []
    for at in range(draw(st.integers(1, max_layers))):
        reads = {at - 1} if at else set()
        reads |= draw(st.sets(st.integers(0, at - 1), max_size=2)) if at else set()
        sizes = [draw(st.integers(0, 9)) for _ in range(5)]
        layers.append(Layer(f"layer{at}", draw(SECONDS), draw(SECONDS), draw(SECONDS), tuple(sorted(reads)), *sizes))
    tie = st.sets(st.integers(0, len(layers) - 1), min_size=2, max_size=2).map(lambda tied: tuple(sorted(tied)))
    ties = (draw(tie),) if len(layers) > 3 and draw(st.booleans()) else ()
    return Profile(tuple(layers), ties)


def equal_costs(num_chunks: int, forward: float = 1.0, inputs: float = 1.0, weights: float = 1.0) -> Costs:
    """Every chunk costs the same, messages nothing: as in the papers' drawings."""
    return Costs((ChunkCost(forward, inputs, weights, stash_bytes=1, parameter_bytes=1),) * num_chunks)
