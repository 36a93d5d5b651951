"""Node 0 of the job: Paceline's own head, beside one worker that is only told of.

Prints "ready" when agents may dial, and at the end a JSON object with the most memory that it ever used.
"""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import description
from told_crew import ToldCrew

import paceline.cli.verbs  # noqa: F401  # `paceline run` has it in memory, too
from paceline.launcher.head import Head
from paceline.launcher.hosts.gathering import Gathering
from paceline.launcher.hosts.node_hosts import NodeHosts
from paceline.launcher.workers.guard_line import guarded


def peak_megabytes() -> float:
    """Of this program; what `getrusage` says counts the process that started it, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def main() -> None:
    job = description.job(description.arguments().parse_args(), 0)
    job_id = os.urandom(8).hex()

    def hosts(loop: asyncio.AbstractEventLoop, say: Callable[[str], None]) -> Gathering:
        gathering = NodeHosts(loop, job, job.nodes, ToldCrew, say)
        print("ready", flush=True)
        return gathering

    with guarded(job_id):
        code = asyncio.run(Head(job, job_id, hosts).run())
    print(json.dumps({"exit_code": code, "peak_megabytes": peak_megabytes()}), flush=True)


if __name__ == "__main__":
    main()
