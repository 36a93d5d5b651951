"""What the pictures of `--plot` show, as SVG."""

import re

from paceline.plan.comparison import Comparison, Pipeline, compare
from paceline.plan.data_profile import DataProfile, StageCost
from paceline.plan.profile import Layer, Profile
from paceline.plan.schedules import schedule_named
from paceline.plan.step_prediction import COMPUTE, MESSAGES, Estimate, Prediction
from paceline.report.data_picture import stages
from paceline.report.plan_picture import schedules
from paceline.report.prediction_picture import scaling

LAYERS = tuple(Layer(f"layer{at}", 0.001, 0.001, 0.001, (at - 1,) if at else ()) for at in range(4))


def compared(*names: str, micro_batches: int = 4) -> Comparison:
    return compare(Pipeline(Profile(LAYERS), 2, micro_batches), [schedule_named(name) for name in names])


def words(picture: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture)


def bars(picture: str, colour: str) -> int:
    """The bars of this colour; besides them the legend has one, and the axes the bar of the legend."""
    return len(re.findall(rf"fill: {colour}[;\"]", picture)) - 2


def test_a_row_for_each_stage_and_a_bar_for_each_action() -> None:
    picture = schedules(compared("1f1b").predictions)
    told = words(picture)
    assert told.count("stage 0") == told.count("stage 1") == 1
    assert "1f1b: a step 30 ms, stages wait 20%" in told
    assert {"F: forward", "B: backward", "update"} <= set(told)
    assert not [one for one in told if one.startswith("W:")], "its backward is whole"
    assert [told.count(str(micro_batch)) for micro_batch in (1, 2, 3)] == [4, 4, 4], "F and B on two stages"
    assert (bars(picture, "#56b4e9"), bars(picture, "#e69f00")) == (8, 8)


def test_schedules_share_an_axis_of_time() -> None:
    picture = schedules(compared("gpipe", "zb_h1", "pipedream").predictions)
    told = words(picture)
    assert sum(": a step " in one for one in told) == 3
    assert "W: gradients of weights, apart from B" in told
    assert told.count("ms") == 1
    # Of pipedream's many batches as much as a batch of the others takes.
    assert bars(picture, "#009e73") == 8
    assert bars(picture, "#56b4e9") < 8 + 8 + 16


def test_chunks_have_letters() -> None:
    told = words(schedules(compared("zb_v").predictions))
    assert {"0a", "0b", "3a", "3b"} <= set(told)


def test_a_long_plan_ends_where_bars_would_be_too_thin() -> None:
    picture = schedules(compared("1f1b", micro_batches=1000).predictions)
    assert 300 < bars(picture, "#56b4e9") <= 800
    assert "1f1b: a step 6.01 s, stages wait 0%" in words(picture)


def test_a_picture_loads_nothing() -> None:
    picture = schedules(compared("1f1b").predictions)
    assert picture.startswith("<svg ")
    assert set(re.findall(r"https?://[^\"' )]+", picture)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "@font-face" not in picture


def test_stages_of_data_that_compute_and_wait() -> None:
    costs = (
        StageCost("map decode", 200e-6, 0.7, 0.1, one_at_a_time=True, on_own_rows=True),
        StageCost("map <read>", 80e-6, 0.3, None, one_at_a_time=True, on_own_rows=True),
    )
    told = words(stages(DataProfile(3211.0, costs, (), None, 0.0, "")))
    assert {"map decode", "map &lt;read&gt;", " 70%", " 30%", "us a row", "3211 rows/s in one worker"} <= set(told)
    assert {"computes", "waits", "computes or waits"} <= set(told)


def predicted(workers: int, rows: int | None, speedup: float) -> Prediction:
    seconds, times = Estimate(0.2 / speedup, 0.1 / speedup, 0.3 / speedup), Estimate(speedup, speedup / 2, 2 * speedup)
    shares = {COMPUTE: 0.75, MESSAGES: 0.25}
    return Prediction(workers, workers, 1, rows, seconds, 1, times, Estimate(speedup / workers, 0, 1), shares)


def test_a_curve_and_the_parts_of_a_step_for_each_number_of_workers() -> None:
    told = words(scaling([[predicted(1, None, 1), predicted(4, None, 3.5)]]))
    assert {"times as fast as 1 worker", "milliseconds of a step", "ideal", "predicted", "compute", "messages"} <= {
        *told
    }
    assert told.count("4") >= 2, "on both axes"


def test_a_curve_for_each_size_of_batches() -> None:
    series = [[predicted(size, rows, size * rows / 256) for size in (1, 2)] for rows in (128, 256)]
    told = words(scaling(series))
    assert {"batches of 128 rows", "batches of 256 rows"} <= {*told}
    assert told.count("128 rows") == told.count("256 rows") == 1, "below their bars"
