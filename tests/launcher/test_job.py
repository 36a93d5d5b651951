import sys

import pytest

from paceline.launcher.job import JobDescription, Program


def test_all_faults_are_told_at_once():
    with pytest.raises(ValueError, match="--workers") as caught:
        JobDescription(command=(), num_workers=0, environment={}, start_timeout_seconds=-1, seed=-5)
    assert [part in str(caught.value) for part in ("command", "--start-timeout", "--seed")] == [True] * 3


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf")])
def test_a_start_timeout_is_finite(seconds: float):
    with pytest.raises(ValueError, match="--start-timeout"):
        JobDescription(command=("x",), num_workers=1, environment={}, start_timeout_seconds=seconds)


def test_scripts_and_modules():
    assert Program("t.py", ("-m", "x")).command() == (
        sys.executable,
        "-P",
        "-m",
        "paceline.bootstrap",
        "t.py",
        "-m",
        "x",
    )
    assert Program("p.t", is_module=True).command() == (sys.executable, "-P", "-m", "paceline.bootstrap", "-m", "p.t")
