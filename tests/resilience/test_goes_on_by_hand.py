"""Two ranks started by hand, without a launcher: one dies or is told to stop, and the same commands again go on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import EXIT_PREEMPTED
from ports import HoldPorts
from programs import Ended, Program, start_python
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("goes_on_by_hand.py")
LIMIT_SECONDS = 90.0


def start(folder: Path, ports: Sequence[int], blow_on_rank_1: tuple[str, ...] = ()) -> list[Program]:
    folder.mkdir(exist_ok=True)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return [
        start_python(
            SCRIPT,
            str(rank),
            *(blow_on_rank_1 if rank == 1 else ()),
            folder=folder,
            variables={"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})},
        )
        for rank in range(2)
    ]


def run(folder: Path, ports: Sequence[int]) -> tuple[str, Any]:
    """Both ranks to their end: what the chief printed, and the one result that both have to the last bit."""
    ended = [program.ended(LIMIT_SECONDS) for program in start(folder, ports)]
    assert [one.code for one in ended] == [0, 0], "\n".join(one.output for one in ended)
    results = {line for one in ended for line in one.lines("END ")}
    assert len(results) == 1
    return ended[0].output, json.loads(results.pop().removeprefix("END "))


def struck(folder: Path, ports: Sequence[int], *blow: str) -> tuple[Ended, Ended]:
    """How both ranks ended when rank 1 was struck."""
    chief, other = start(folder, ports, blow)
    return chief.ended(LIMIT_SECONDS), other.ended(LIMIT_SECONDS)


@pytest.mark.proof
def test_a_rerun_on_every_node_goes_on_from_the_snapshot(tmp_path: Path, hold_ports: HoldPorts, worlds: Worlds) -> None:
    ports = hold_ports(2)
    alone = worlds.not_launched.run_script(SCRIPT, "0", "undisturbed", folder=tmp_path)
    undisturbed = json.loads(alone.output.partition("END ")[2])
    folder = tmp_path / "struck"

    chief, killed = struck(folder, ports, "SIGKILL", "12")
    assert killed.code == -9
    assert chief.code != 0
    assert "because rank 1" in chief.output.strip().splitlines()[-1], chief.output

    chief, told = struck(folder, ports, "SIGTERM", "17")
    assert (chief.code, told.code) == (EXIT_PREEMPTED, EXIT_PREEMPTED), chief.output + told.output
    assert "resuming from the snapshot of step" in chief.output, "nothing was left of the run that was killed"
    assert "all ranks stop after step 18" in chief.output + told.output

    output, result = run(folder, ports)
    assert "resuming from the snapshot of step 18" in output
    assert result == pytest.approx(undisturbed, rel=1e-9)
