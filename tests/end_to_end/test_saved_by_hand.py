"""Files of two processes that nobody launches: one writer, and nothing left of how they agreed on it."""

import json
import time
from pathlib import Path

import pytest

from ports import HoldPorts
from programs import start_python

pytestmark = [pytest.mark.processes]

SCRIPT = Path(__file__).with_name("saved_by_hand.py")
GONE_WITHIN_SECONDS = 60.0
"""The agents, which clean up, end a moment after their workers."""


@pytest.mark.parametrize(
    ("how", "codes"),
    [
        pytest.param("ended", ({0}, {0}), marks=pytest.mark.proof),
        pytest.param("killed", ({137, 143, -9, -15}, {-9}), marks=pytest.mark.proof),
    ],
)
def test_what_two_processes_save_is_there_for_both(
    tmp_path: Path, hold_ports: HoldPorts, how: str, codes: tuple[set[int], set[int]]
) -> None:
    workers = [f"127.0.0.1:{port}" for port in hold_ports(2)]
    programs = []
    for index in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        variables = {"TF_CONFIG": json.dumps(config)}
        programs.append(start_python(SCRIPT, tmp_path, str(index), how, folder=tmp_path, variables=variables))
    for program, expected in zip(programs, codes, strict=True):
        ended = program.ended(180)
        assert ended.code in expected, ended.output
    places = {(tmp_path / f"private.{index}").read_text() for index in range(2)}
    assert len(places) == 1
    private = Path(places.pop())
    give_up_at = time.monotonic() + GONE_WITHIN_SECONDS
    while private.exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert not private.exists()
