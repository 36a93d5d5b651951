"""What the tables of a plan tell."""

import pytest

from paceline.cli.plan_tables import print_comparison
from paceline.plan.comparison import Pipeline, compare
from paceline.plan.profile import Layer, Profile
from paceline.plan.schedules import NAMES, schedule_named

PROFILE = Profile(
    tuple(
        Layer(f"dense{at}", 0.001, 0.001, 0.001, (at - 1,) if at else (), 1000, 1_000_000, 0, 2_000_000)
        for at in range(4)
    )
)


def _printed(capsys: pytest.CaptureFixture[str], pipeline: Pipeline) -> list[str]:
    print_comparison(pipeline, compare(pipeline, [schedule_named(name) for name in NAMES]))
    return [line.rstrip() for line in capsys.readouterr().out.split("\n")]


def test_layers_schedules_and_chart(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(capsys, Pipeline(PROFILE, stages=2, micro_batches=4))
    assert lines[1].split() == ["dense0", "0", *["1", "ms"] * 3, "1.0", "kB", "1.0", "MB", "2.0", "MB", "0", "bytes"]
    [one_f_one_b] = [line for line in lines if line.startswith("1f1b")]
    assert " ".join(one_f_one_b.split()) == "1f1b 30 ms 20% 12.0 MB 10.0 MB 1 1 2+2 one process's"
    assert lines[-5].startswith("zb_v, 4 micro-batches (F forward, B backward")
    assert lines[-3].startswith("stage 0  F0a F1a F2a F0b B0b W0b")
    assert lines[-2].startswith("stage 1      F0a F0b F1a F1b B0b W0b")


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(capsys, Pipeline(PROFILE, stages=2, micro_batches=4, memory_limit_bytes=1e6))
    assert 'smallest limit that would do is memory_limit="12MB".' in " ".join(
        line for line in lines if line.startswith("1f1b")
    )
    assert not [line for line in lines if line.startswith("stage")]
