"""The line to the agent in a worker whose script closes descriptors."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

CLOSES = """
import os, paceline
if paceline.rank() == 0:
    os.closerange(3, 1024)
    os.dup2(os.open("/dev/null", os.O_RDWR), 12)  # what has one of the numbers now is the script's
if paceline.world_size() == 1:
    from paceline.events.bus import bus
    from paceline.events.worker_events import FitEnded
    for step in (1, 2):
        bus.emit(FitEnded(0, step))
    print("to the end")
else:
    from paceline.comm.world import current_world
    current_world().group.barrier()
"""


def test_a_script_that_closes_all_descriptors_trains_on_alone(tmp_path: Path) -> None:
    """The closed line was taken for the agent's end: the worker appointed a guard, which killed the host's workers."""
    (tmp_path / "closes.py").write_text(CLOSES)
    alone = run_workers(1, "closes.py", folder=tmp_path)
    assert alone.code == 0, alone.output
    assert "to the end" in alone.output
    assert alone.output.count("[descriptors-closed]") == 1
    together = run_workers(2, "closes.py", folder=tmp_path)
    assert together.code == 1, together.output
    assert "RuntimeError: the script has closed descriptors" in together.output
    assert "rank 0 (" in together.output.splitlines()[-1]
