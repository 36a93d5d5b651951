"""Processes that wait to be workers, and may have ended when they are called."""

import signal
import sys
import uuid

import pytest

from paceline.cluster import environment
from paceline.launcher.workers.guard_line import guarded
from paceline.launcher.workers.standbys import Standbys

pytestmark = pytest.mark.processes

DEAF = (
    f"import os, time\nos.close(int(os.environ['{environment.AGENT_FD}']))\nprint('deaf', flush=True)\ntime.sleep(600)"
)


def test_a_standby_that_does_not_hear_any_more_is_none() -> None:
    """It was asked whether it lived, and ended before it was told its rank: the agent failed with a broken pipe."""
    with guarded(uuid.uuid4().hex[:16]) as guard:
        standbys = Standbys([sys.executable, "-c", DEAF], guard)
        standbys.fill([{"PATH": "/usr/bin"}])
        (spawned,) = standbys._waiting
        assert spawned.process.stdout is not None
        assert spawned.process.stdout.readline() == b"deaf\n"
        assert standbys.call(0, {environment.RANK: "0"}) is None
        assert spawned.process.poll() == -signal.SIGKILL
        standbys.close()
