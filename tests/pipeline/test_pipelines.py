"""Stages on several ranks compute what one process computes."""

from pathlib import Path

import pytest

from paceline.plan.schedules import NAMES, schedule_named
from programs import run_workers

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

SYNCHRONOUS = [name for name in NAMES if schedule_named(name).is_synchronous]
"""All of them are jobs of the script."""
_SCRIPT = Path(__file__).with_name("pipeline_job.py")


_IN_EVERY_CHECK = ("auto", "zb_v")
"""`1f1b` is that of `test_pipelined_parity.py`; `zb_v` has several chunks on a stage, and weights' gradients apart."""


@pytest.mark.parametrize(
    ("workers", "schedules", "trained"),
    [
        (2, _IN_EVERY_CHECK, [f"{schedule}: skips" for schedule in _IN_EVERY_CHECK]),
        pytest.param(
            2, (), [f"{schedule}: skips" for schedule in ("auto", *SYNCHRONOUS)], marks=pytest.mark.proof, id="2-all"
        ),
        pytest.param(
            4, (), ["gpipe: masked sequences", "gpipe: images", "1f1b: skips"], marks=pytest.mark.proof, id="4-all"
        ),
    ],
)
def test_stages_and_replicas_are_one_process(
    tmp_path: Path, workers: int, schedules: tuple[str, ...], trained: list[str]
) -> None:
    # Each rank trains plain models, too, to compare with.
    options = ("--allow-independent", _SCRIPT, str(tmp_path), *schedules)
    ended = run_workers(workers, *options, folder=tmp_path, limit_seconds=400)
    assert ended.code == 0, ended.output
    for line in (
        *(f"{job} as plain Keras" for job in trained),
        "BatchNormalization of one row",
        "other stages' variables cannot be read",
        "saved whole",
        "predicts from a file",
        "goes on after another compile",
        "goes on with the optimizer of a file",
    ):
        assert ended.output.count(line) == workers, ended.output
    assert "[no-strategy]" not in ended.output
