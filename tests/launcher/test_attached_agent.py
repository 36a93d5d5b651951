"""The process of the agent beside a worker that was started by hand."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("heavy", ["tensorflow", "keras", "numpy", "mpi4py", "typer", "rich", "paceline.cli", "psutil"])
def test_starting_imports_nothing_heavy(heavy: str) -> None:
    """Each start of a job waits for it."""
    program = f"import sys, paceline.launcher.attached_agent; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", program], timeout=60, check=False).returncode == 0
