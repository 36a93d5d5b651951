"""What ``--debug-rank`` and ``--debug-port`` make of a job: one rank stops, and nobody ends the others for waiting."""

from collections.abc import Callable
from dataclasses import replace

from paceline.cluster.job_options import JobOptions


def debugged(options: JobOptions, num_ranks: int, has_other_hosts: bool, say: Callable[[str], None]) -> JobOptions:
    """The options of a job of which one rank is debugged, if one is.

    Args:
        options: What the user has decided.
        num_ranks: The world's size.
        has_other_hosts: Whether ranks run on other hosts, too.
        say: Prints a line for the user.

    Raises:
        ValueError: there is no such rank, or it may be on another host.
    """
    if options.debug_rank is None and options.debug_port is None:
        return options
    rank = options.debug_rank or 0
    if has_other_hosts:
        raise ValueError(
            "--debug-rank, --debug-port: received with several hosts; expected a job on this host alone, which has the "
            "keyboard and the port. Leave --hosts, --hostfile and --nnodes out (under Slurm: --standalone). [debug]"
        )
    if rank >= num_ranks:
        raise ValueError(f"--debug-rank: received {rank}; expected a rank from 0 to {num_ranks - 1} [debug]")
    if options.hang_timeout_seconds is not None:
        say("--hang-timeout is off while a rank is debugged")
    return replace(options, debug_rank=rank, hang_timeout_seconds=None)
