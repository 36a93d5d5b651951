"""Two stages on two ranks compute what one process computes."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

_SCRIPT = Path(__file__).with_name("pipeline_job.py")


def test_two_stages_are_one_process(tmp_path: Path) -> None:
    ended = run_workers(2, _SCRIPT, str(tmp_path), folder=tmp_path, limit_seconds=300)
    assert ended.code == 0, ended.output
    for line in (
        *(f"{schedule} as plain Keras" for schedule in ("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v")),
        "other stages' variables cannot be read",
        "saved whole",
        "predicts from a file",
    ):
        assert ended.output.count(line) == 2, ended.output
