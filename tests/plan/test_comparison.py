"""The schedules beside each other."""

import tracemalloc

import pytest

from paceline.errors import ConfigurationError
from paceline.plan.comparison import Pipeline, compare, predict
from paceline.plan.profile import Layer, Profile
from paceline.plan.schedules import NAMES, schedule_named
from paceline.plan.split import cuts_of_balance

LAYERS = tuple(
    Layer(f"layer{at}", 1, 1, 1, (at - 1,) if at else (), 1_000_000, 5_000_000, 1_000_000, 2_000_000) for at in range(8)
)
PROFILE = Profile(LAYERS)
ALL = [schedule_named(name) for name in NAMES]


def test_the_order_of_the_papers() -> None:
    found = compare(Pipeline(PROFILE, stages=4, micro_batches=8), ALL)
    seconds = {one.schedule.name: one.step_seconds for one in found.predictions}
    assert found.refusals == {}
    # A stage takes 6 seconds for a micro-batch; a chunk of half a stage 3.
    assert seconds == {
        "pipedream": 48,
        "pipedream_2bw": 48,
        "zb_v": 51,
        "zb_h1": 54,
        "interleaved": 57,
        "1f1b": 66,
        "gpipe": 66,
    }
    assert [one.step_seconds for one in found.predictions] == sorted(seconds.values())
    assert found.best().schedule.name == "zb_v"


def test_memory_decides() -> None:
    everything = compare(Pipeline(PROFILE, 4, 8), ALL)
    most = {one.schedule.name: max(peak.total_bytes for peak in one.peaks) for one in everything.predictions}
    limited = compare(Pipeline(PROFILE, 4, 8, memory_limit_bytes=most["1f1b"]), ALL)
    assert "gpipe" in limited.refusals
    for one in limited.predictions:
        assert max(peak.total_bytes for peak in one.peaks) <= most["1f1b"]
    assert limited.best().step_seconds == min(
        one.step_seconds for one in limited.predictions if one.schedule.is_synchronous
    )


def test_what_cannot_be_used_says_why() -> None:
    found = compare(Pipeline(PROFILE, stages=5, micro_batches=3, memory_limit_bytes=12e6), ALL)
    assert found.refusals["zb_v"].startswith("8 layers, which can be cut in 7 places, cannot be divided into 10 chunks")
    assert found.refusals["pipedream_2bw"] == "pipedream_2bw needs 5 micro-batches for 5 stages, not 3."
    assert 'memory_limit="' in found.refusals["gpipe"]
    with pytest.raises(
        ConfigurationError, match=r"no synchronous schedule can be used. gpipe: .*; zb_v: .*\[pipeline\]"
    ):
        found.best()


def test_the_limit_that_a_refusal_names_does() -> None:
    for schedule in ALL:
        with pytest.raises(ConfigurationError) as refusal:
            predict(Pipeline(PROFILE, 2, 4, memory_limit_bytes=1e6), schedule)
        limit = float(str(refusal.value).split('memory_limit="')[1].split("MB")[0]) * 1e6
        predict(Pipeline(PROFILE, 2, 4, memory_limit_bytes=limit), schedule)


def test_a_split_by_hand_is_kept() -> None:
    pipeline = Pipeline(PROFILE, 2, 4, cuts=lambda chunks: cuts_of_balance(PROFILE, [5, 3], chunks))
    found = compare(pipeline, ALL)
    assert all(one.split.cuts == (5, 8) for one in found.predictions)
    assert set(found.refusals) == {"interleaved", "zb_v"}
    with pytest.raises(ConfigurationError, match=r"holds .* MB on one worker, and the limit is 1.0 MB"):
        predict(
            Pipeline(
                PROFILE, 2, 4, memory_limit_bytes=1e6, cuts=lambda chunks: cuts_of_balance(PROFILE, [5, 3], chunks)
            ),
            schedule_named("1f1b"),
        )


def test_recomputation_needs_less_memory_and_more_time() -> None:
    kept, recomputed = (
        predict(Pipeline(PROFILE, 4, 8, recompute=recompute), schedule_named("1f1b")) for recompute in (False, True)
    )
    assert recomputed.step_seconds > kept.step_seconds
    assert max(peak.total_bytes for peak in recomputed.peaks) < max(peak.total_bytes for peak in kept.peaks)


@pytest.mark.parametrize("name", NAMES)
def test_long_plans_of_many_stages_take_little_memory(name: str) -> None:
    """Each action of a plan was an object: 512 stages took minutes and gigabytes. Now it is a number for each step."""
    stages, micro_batches = 8, 64
    profile = Profile(tuple(Layer(f"layer{at}", 1, 1, 1, (at - 1,) if at else ()) for at in range(2 * stages)))
    tracemalloc.start()
    try:
        found = predict(Pipeline(profile, stages, micro_batches), schedule_named(name))
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 150 * sum(len(begins) for begins in found.timeline.begins)
