"""From the command line, variables and a file to the job that they describe."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.config_file import config_file
from paceline.cli.debugging import debugged
from paceline.cli.program import named_program
from paceline.cluster.control_groups import core_quota
from paceline.cluster.hosts import place_ranks
from paceline.cluster.job_options import JobOptions
from paceline.cluster.option_sources import CommandLine, Variables, settled, users_variables
from paceline.cluster.row_shares import check_text
from paceline.cluster.schedulers import may_be_scheduled
from paceline.cluster.server_cluster import OPEN_SERVERS, refuse_open_servers
from paceline.cluster.spec import EVALUATOR, PARAMETER_SERVER, ROLES, WORKER
from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription, Program
from paceline.launcher.workers.host_resources import num_workers_for, usable_cores, visible_gpus

if TYPE_CHECKING:
    from paceline.launcher.other_hosts import SeveralHosts

AUTO, GPU, CPU = "auto", "gpu", "cpu"
"""Values of --workers that are no number."""

_OF_OTHER_HOSTS = (
    *("hosts", "hostfile", "nnodes", "node_rank", "rendezvous"),
    *("standalone", "master_addr", "master_port", "rdzv_backend"),
)
"""Without one of these options, and without a scheduler, the job is this host's; most are, and should start quickly."""


def given_options(
    script: str | None, arguments: Sequence[str], given: Mapping[str, object], variables: Mapping[str, str]
) -> tuple[Program, JobOptions, dict[str, str]]:
    """The program, what the user has decided about the job, and the variables for its workers.

    Args:
        script: Of the command line; None: that of the file.
        arguments: Those of `script`.
        given: What the flags say, by their attributes.
        variables: The environment.

    Raises:
        ConfigurationError: a variable, the file, or a value in it is wrong.
        ValueError: something on the command line is.
    """
    users = users_variables(variables)
    config = config_file(given.get("config"), users)
    options = settled(JobOptions, [CommandLine(given), Variables(users), config.options])
    named = _named_variables(options.env, variables)
    if named:  # they may be variables of options
        options = settled(JobOptions, [CommandLine(given), Variables({**users, **named}), config.options])
    if script is None and config.script is not None:
        script, arguments = config.script, config.arguments
    if script is None:
        raise ValueError(
            "SCRIPT: received nothing; expected a script, e.g. paceline run --workers 2 train.py [no-script]"
        )
    return named_program(script, arguments, options.module), options, {**variables, **named}


def made_job(
    program: Program, options: JobOptions, variables: Mapping[str, str], say: Callable[[str], None]
) -> JobDescription:
    """The job.

    Args:
        program: What each worker runs.
        options: What the user has decided; a folder for snapshots on this host is made absolute, for workers on others.
        variables: Those that workers inherit.
        say: Prints a line for the user.

    Raises:
        ConfigurationError: hosts, nodes or their secret are wrong, or what ``--chaos`` asks for is impossible.
        ValueError: options exclude each other.
    """
    several = None
    if _may_concern_others(options, variables):
        from paceline.cli.host_options import other_hosts

        several = other_hosts(options, variables)
    num_workers = _num_workers(options, several, variables)
    if several and several.hosts:
        place_ranks(several.hosts, num_workers)  # refuses more workers than slots
    if (options.ps or options.data_workers) and several is not None and (several.hosts or several.nodes):
        refuse_open_servers(options)
        say(f"{OPEN_SERVERS}.")
    in_all = num_workers * (several.nodes.num_nodes if several and several.nodes else 1)
    if options.shares and not options.ps:
        check_text(options.shares, in_all)
    if options.snapshot_dir is not None and "://" not in options.snapshot_dir:
        options = replace(options, snapshot_dir=str(Path(options.snapshot_dir).absolute()))
    if options.chaos:
        from paceline.chaos.fault_text import check_possible, plan_text, read_plan

        plan = read_plan(options.chaos)
        check_possible(
            plan,
            world_size=1 if options.ps else in_all,
            servers={WORKER: in_all, PARAMETER_SERVER: options.ps} if options.ps else {},
            has_snapshots=options.snapshot_dir is not None,
            has_hang_timeout=options.hang_timeout_seconds is not None,
        )
        say(plan_text(plan, options.max_restarts))
        options = replace(options, chaos=(str(plan),))
    on_other_hosts = several is not None and bool(several.hosts or several.nodes)
    options = debugged(options, 1 if options.ps else in_all, on_other_hosts, say)
    return JobDescription(
        command=program.command(),
        num_workers=num_workers,
        environment=variables,
        roles=(ROLES[EVALUATOR],) if options.evaluator else (),
        options=options,
        program=program,
        hosts=several.hosts if several else (),
        ssh=several.ssh if several else None,
        nodes=several.nodes if several else None,
        forwarded=tuple(entry.partition("=")[0] for entry in options.env),
    )


def _may_concern_others(options: JobOptions, variables: Mapping[str, str]) -> bool:
    return may_be_scheduled(variables) or any(getattr(options, name) not in (None, False) for name in _OF_OTHER_HOSTS)


def _num_workers(options: JobOptions, several: "SeveralHosts | None", variables: Mapping[str, str]) -> int:
    text = options.workers
    if options.num_processes is not None:
        return _share(text, options.num_processes, several.nodes.num_nodes if several and several.nodes else 1)
    if several and several.hosts:
        if text in (None, AUTO):
            return sum(host.slots for host in several.hosts)
        if text in (GPU, CPU):
            raise ValueError(
                f"--workers {text} with --hosts: expected the slots of each host, as in --hosts a:4,b:4 [hosts-slots]"
            )
    if text is None:
        return 1
    gpus = visible_gpus(variables) if text in (AUTO, GPU) else ()
    if text == GPU and not gpus:
        raise ValueError(
            "--workers gpu: this process sees no GPU (CUDA_VISIBLE_DEVICES, NVIDIA's driver). Without GPUs type "
            "--workers cpu, or a number. [no-gpu]"
        )
    if text in (AUTO, GPU, CPU):
        return num_workers_for(usable_cores(), core_quota(), gpus)
    return int(text)


def _share(text: str | None, in_all: int, num_nodes: int) -> int:
    """The workers of this host, of those that accelerate's option counts on all hosts together."""
    if text is not None:
        raise ValueError(
            "--workers with --num-processes: expected one of them; --workers is the number on each host, "
            "--num-processes the number on all hosts. [num-processes]"
        )
    if in_all % num_nodes:
        raise ValueError(
            f"--num-processes: received {in_all}, the workers of all {num_nodes} hosts together; expected a multiple "
            f"of {num_nodes}, or --workers with the number of each host. [num-processes]"
        )
    return in_all // num_nodes


def _named_variables(entries: tuple[str, ...], variables: Mapping[str, str]) -> dict[str, str]:
    """What ``--env`` names, of this host's workers, too: NAME=VALUE, or NAME with the value it has here.

    Raises:
        ConfigurationError: a name is not set, or missing.
    """
    named = [(name, equals, value) for name, equals, value in (entry.partition("=") for entry in entries)]
    missing = [name for name, equals, _ in named if name and not equals and name not in variables]
    nameless = [equals + value for name, equals, value in named if not name]
    faults = []
    if nameless:
        faults.append(f"--env: received {', '.join(map(repr, nameless))}; expected NAME=VALUE, or NAME")
    if missing:
        faults.append(
            f"--env: received {', '.join(missing)}, which is not set in this shell; expected the name of a "
            "variable that is set, or NAME=VALUE"
        )
    if faults:
        raise ConfigurationError("\n".join(faults) + " [env-not-set]")
    return {name: value if equals else variables[name] for name, equals, value in named}
