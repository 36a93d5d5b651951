"""Worlds of real rank processes for tests: started with PMI and no `mpiexec`, ended at a deadline whatever happens.

    with start_ranks(script, 2, "argument") as ranks:       [first, second] = run_ranks(script, 2, "argument",
        ranks.wait_for_output(0, "ready")                                               timeout_seconds=60)
        ranks.kill()
        results = ranks.wait(timeout_seconds=10)

Each rank is a worker as `paceline run` starts it: it finds identity, TF_CONFIG and the sockets to its watcher in its
environment. A rank that fails keeps the others in a collective for ever, so they are killed shortly after.
"""

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paceline.cluster import environment
from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import LOCAL_HOST, WORKER, Address, ClusterSpec, Task
from ports import held_ports
from rank_processes import RankResult, Ranks

__all__ = ["RankResult", "Ranks", "run_ranks", "start_ranks"]


@contextmanager
def start_ranks(
    script: Path,
    size: int,
    *args: str,
    variables: Mapping[str, str] | None = None,
    bootstrap: bool = False,
    wrapper: tuple[str, ...] = (),
) -> Iterator[Ranks]:
    """Starts `size` ranks of `script`; none outlives the block.

    Args:
        script: A Python file.
        size: Number of ranks.
        args: The script's arguments.
        variables: Environment variables beside those of a launched worker and this process's own.
        bootstrap: Whether the script runs as under `paceline run` (seeds, drop-in classes, exit in order), or plainly.
        wrapper: Words of a command to put before Python's, e.g. ``("unshare", "-m")``.
    """
    job_id = uuid.uuid4().hex
    ranks = Ranks(size)
    with held_ports(size) as ports, contextlib.closing(ranks):
        cluster = ClusterSpec({WORKER: tuple(Address(LOCAL_HOST, port) for port in ports)})
        for rank in range(size):
            identity = WorkerIdentity(
                task=Task(WORKER, rank),
                rank=rank,
                world_size=size,
                local_rank=rank,
                local_world_size=size,
                generation=1,
                job_id=job_id,
                seed=7,
            )
            ranks.add(
                [
                    *wrapper,
                    sys.executable,
                    *(["-P", "-m", "paceline.bootstrap"] if bootstrap else []),
                    str(script),
                    *args,
                ],
                {
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                    **identity.to_environment(),
                    environment.TF_CONFIG: cluster.to_tf_config(Task(WORKER, rank)),
                    **(variables or {}),
                },
            )
        ranks.watch()
        yield ranks


def run_ranks(
    script: Path,
    size: int,
    *args: str,
    timeout_seconds: float,
    variables: Mapping[str, str] | None = None,
    bootstrap: bool = False,
    wrapper: tuple[str, ...] = (),
) -> list[RankResult]:
    """Runs `size` ranks of `script` to their end, `timeout_seconds` at most; arguments as for `start_ranks`."""
    with start_ranks(script, size, *args, variables=variables, bootstrap=bootstrap, wrapper=wrapper) as ranks:
        return ranks.wait(timeout_seconds=timeout_seconds)
