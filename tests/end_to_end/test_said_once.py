"""What TensorFlow and Keras say on all workers is on the screen once; what the script prints, from each of them."""

from pathlib import Path

import pytest

from programs import run_python

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("said_once.py")
ONCE = (
    "cpu_feature_guard.cc",
    'Model: "sequential"',
    "Total params: 5",
    "2 replicas; global batch",
)
IN_EACH_FIT = ("Epoch 2: early stopping", "Epoch 2: ReduceLROnPlateau", "Epoch 1: saving model", "Epoch 1/4")


def test_what_two_workers_say_is_shown_once(tmp_path: Path) -> None:
    """24 of the 31 lines of a start with four workers were the same eight, and `EarlyStopping(verbose=1)` spoke four
    times.
    """
    ended = run_python(
        *("-m", "paceline", "run", "--workers", "2", "--log-dir", "logs", SCRIPT),
        folder=tmp_path,
        limit_seconds=120,
        variables={"TF_CPP_MIN_LOG_LEVEL": "0"},
    )
    assert ended.code == 0, ended.output
    for part, times in [
        *((part, 1) for part in ONCE),
        *((part, 2) for part in IN_EACH_FIT),
        ("trained in 2 epochs", 2),
    ]:
        assert len([line for line in ended.output.splitlines() if part in line]) == times, (part, ended.output)
    for rank in range(2):
        kept = (tmp_path / "logs" / "latest" / f"job_{rank}.log").read_text()
        for part in ("cpu_feature_guard.cc", "trained in 2 epochs"):
            assert part in kept
        for part in ('Model: "sequential"', "Epoch 2: early stopping"):
            assert (part in kept) == (rank == 0)
