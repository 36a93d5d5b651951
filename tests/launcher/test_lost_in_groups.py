"""A rank that dies while others wait for it, in a message or in a group of some ranks: nobody waits for ever."""

import pytest

pytestmark = pytest.mark.processes

_SCRIPT = """
import os, signal, sys
from pathlib import Path
import numpy as np
from paceline.comm.world import current_world

world = current_world()
group = world.group
part = group.split(0 if group.rank < 2 else 1)  # rank 1 dies beside rank 0; rank 2 waits in a group of its own
if group.rank == 1:
    while not (Path("waits0").exists() and Path("waits2").exists()):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
large = np.zeros(1 << 20)
calls = {
    "recv": lambda: group.recv((3,), "f4", source=1, tag=4).wait(),
    "send": lambda: group.send(large, to=1).wait(),
    "all_reduce of a part": lambda: (part if group.rank == 0 else group).all_reduce([large]),
    "split": lambda: group.split(0),
}
Path(f"waits{group.rank}").touch()
calls[sys.argv[1]]()
print("came back")
"""


@pytest.mark.parametrize("call", ["recv", "send", "all_reduce of a part", "split"])
def test_those_who_wait_for_a_lost_rank_are_ended(start, call: str) -> None:
    finished = start(_SCRIPT, call, num_workers=3).finish()
    assert finished.code == 128 + 9, finished
    assert "came back" not in finished.stdout
    assert "rank 1" in finished.told[-1], finished
    assert "was killed by signal 9 (SIGKILL)" in finished.told[-1], finished
