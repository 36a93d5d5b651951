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
    assert lines[0] == "schedule='zb_v', balance=[1, 1, 1, 1]"
    [first] = [" ".join(line.split()) for line in lines if line.startswith("dense0")]
    assert first == "dense0 0 1 ms 1 ms 1 ms 1.0 kB 1.0 MB 2.0 MB 0 bytes"
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


def test_equal_layers_of_a_stage_are_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Every layer had a row, before the answer."""
    print_comparison(pipeline := Pipeline(PROFILE, 2, 4), compare(pipeline, [schedule_named("1f1b")]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "schedule='1f1b', balance=[2, 2]"
    rows = [" ".join(line.split()).partition(" 1 ms")[0] for line in lines if line.startswith("dense")]
    assert rows == ["dense0 to dense1: 2 alike 0", "dense2 to dense3: 2 alike 1"]


def test_equal_blocks_of_a_stage_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = (("attention", 2), ("norm", 1))
    names = [(f"{name}{block}", number) for block in range(4) for name, number in kinds]
    layers = [Layer(name, 0.001 * cost, 0.001, 0.001, (at - 1,) if at else ()) for at, (name, cost) in enumerate(names)]
    pipeline = Pipeline(Profile((*layers, Layer("head", 0.001, 0.001, 0.001, (7,)))), 1, 4)
    print_comparison(pipeline, compare(pipeline, [schedule_named("1f1b")]))
    rows = [
        line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if line[:4] in ("atte", "norm", "head")
    ]
    assert rows == ["attention0 to attention3: 4 alike", "norm0 to norm3: 4 alike", "head"]


def test_a_limit_is_told_in_its_own_unit(capsys: pytest.CaptureFixture[str]) -> None:
    """Every limit was told in megabytes: 1 kB as "0.0 MB"."""
    lines = _printed(capsys, Pipeline(PROFILE, stages=2, micro_batches=4, memory_limit_bytes=1000))
    assert "fits into 1.0 kB per worker" in " ".join(" ".join(lines).split())
