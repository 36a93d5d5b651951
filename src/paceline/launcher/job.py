"""The description of a job, and the command of its workers. Pure."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.cluster.job_options import JobOptions
from paceline.cluster.spec import (
    CHIEF,
    COORDINATED_DATA_WORKER,
    DATA_WORKER,
    PARAMETER_SERVER,
    ROLES,
    SERVING_WORKER,
    Role,
    Task,
    cast_of,
)

if TYPE_CHECKING:
    from paceline.cluster.hosts import HostSlots
    from paceline.launcher.other_hosts import Nodes, SshOptions

START_TIMEOUT_SECONDS = 60.0
"""Without --start-timeout."""

BOOTSTRAP = ("-P", "-m", "paceline.bootstrap")
"""What prepares a worker and then runs the user's script in the same process.

-P: without it, `-m` would let a `signal.py` in the current directory replace the standard library's, although the
script lies elsewhere. The bootstrap puts first on `sys.path` what Python would for the script.
"""


@dataclass(frozen=True, slots=True)
class Program:
    """What each worker runs: a script, or a module, with its arguments."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def command(self) -> tuple[str, ...]:
        """The command of a worker, with this interpreter.

        >>> Program("train", ("--epochs", "3"), is_module=True).command()[1:]
        ('-P', '-m', 'paceline.bootstrap', '-m', 'train', '--epochs', '3')
        """
        return (sys.executable, *BOOTSTRAP, *(["-m"] if self.is_module else []), self.target, *self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """A job.

    >>> job = JobDescription(command=Program("train.py").command(), num_workers=2, environment={})

    Args:
        command: What each worker of this host executes.
        num_workers: How many of them: on this host, or with `hosts` in all.
        roles: Of the processes that are not just workers, one entry for each: a chief, which is one of `num_workers`,
            and those outside of the world, which come on top.
        environment: The variables that workers inherit, the launcher's own as a rule.
        options: What the user has decided, from the command line, variables and a file.
        program: What `command` runs, for other hosts to run it, too.
        hosts: Hosts to start agents on over ssh, in rank order; those behind the last one that is needed are spares.
        ssh: How; None: in the usual way.
        nodes: Set when each host was given the command; then there are no `hosts`.
        forwarded: Names of variables, set in `environment`, that go to other hosts.

    Raises:
        ValueError: a value is out of range.
    """

    command: tuple[str, ...]
    num_workers: int
    environment: Mapping[str, str]
    roles: tuple[Role, ...] = ()
    options: JobOptions = JobOptions()
    program: Program | None = None
    hosts: "tuple[HostSlots, ...]" = ()
    ssh: "SshOptions | None" = None
    nodes: "Nodes | None" = None
    forwarded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        faults: list[str] = []
        if not self.command:
            faults.append("command: received nothing; expected what each worker executes")
        if self.num_workers < 1:
            faults.append(f"--workers: received {self.num_workers}; expected a number from 1 on")
        if wrong := [role.name for role in self.roles if role.in_world is not (role.name == CHIEF)]:
            faults.append(f"roles: received {', '.join(wrong)}; expected a chief, or processes outside of the world")
        if sum(role.name == CHIEF for role in self.roles) > 1:
            faults.append("roles: received several chiefs; expected one at most")
        if faults:
            raise ValueError("\n".join(faults) + " [option]")

    def cast(self, num_workers: int) -> tuple[tuple[Task, Role], ...]:
        """Task and role of each process of the job, ranks first, the others numbered on behind them.

        Beside parameter servers the chief is the only rank, and the workers stand outside of the world.

        Args:
            num_workers: Of the whole job.
        """
        num_servers, num_data_workers = self.options.ps or 0, self.options.data_workers or 0
        data_workers = [COORDINATED_DATA_WORKER if num_data_workers == 1 else DATA_WORKER] * num_data_workers
        if not num_servers:
            return cast_of([*data_workers, *self.roles], num_workers)
        servers = [SERVING_WORKER] * num_workers + [ROLES[PARAMETER_SERVER]] * num_servers
        return cast_of([ROLES[CHIEF], *servers, *data_workers, *self.roles], 1)

    @property
    def most_ports(self) -> int:
        """How many ports the job may need on this host: one for each process, and one for data workers to meet at."""
        return len(self.cast(self.num_workers)) + bool(self.options.data_workers)

    @property
    def start_timeout_seconds(self) -> float:
        """How long the workers may take to connect once all have begun to, and how long hosts are waited for."""
        given = self.options.start_timeout_seconds
        return START_TIMEOUT_SECONDS if given is None else given
