"""Slurm: an sbatch script that starts one `paceline run` on each node.

Ranks, hosts and port are found on the nodes from Slurm's own variables. What the script adds is a secret file, and what
must happen when Slurm announces the end: tell the job, wait for its snapshot, and queue it again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.cluster import environment
from paceline.cluster.faults import Fault, shown
from paceline.errors import EXIT_CONFIGURATION, EXIT_PREEMPTED
from paceline.render.grammar import SLURM_GPUS, SLURM_PATH, SLURM_TIME, SLURM_WORD, TEXT
from paceline.render.refusal import refuse_any
from paceline.render.shell_text import command_line, exports, option_lines
from paceline.render.training_run import TrainingRun

_SECRET = r"""
# The job's secret: a file that its owner alone can read, where all nodes see it.
export @SECRET_FILE@="$PWD/.paceline-secret-$SLURM_JOB_ID"
rm -f -- "$@SECRET_FILE@"
if ! (umask 077 && set -C && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$@SECRET_FILE@"); then
    echo "paceline: no secret could be written to $@SECRET_FILE@. Submit from a folder of yours that all nodes see." >&2
    exit @CONFIGURATION@
fi
trap 'rm -f -- "$@SECRET_FILE@"' EXIT
""".lstrip()

_FORWARDING = r"""
# Slurm announces the end with SIGUSR1, to this shell alone.
step=
trap 'if [ -n "$step" ]; then kill -s USR1 "$step"; fi' USR1
""".lstrip()

_TERM_IF_REQUEUED = r"""
# With SIGTERM Slurm ends the job itself, perhaps because it was cancelled: then it must not come back.
ended_by_slurm=no
trap 'ended_by_slurm=yes' TERM
""".lstrip()

_TERM_IF_NOT = r"""
# Slurm sends SIGTERM to the job itself; this shell waits for its end.
trap : TERM
""".lstrip()

_WAITING = r"""
step=$!

# No `wait` before the job has ended: of two signals that interrupt one, bash may lose the second.
while kill -0 "$step" 2> /dev/null; do
    sleep 1
done
wait "$step"
code=$?
if [ "$code" -gt 128 ]; then  # by a signal, which has ended either the job or this wait for it
    wait "$step"
    again=$?
    if [ "$again" -ne 127 ]; then code=$again; fi  # 127: it was the job
fi
""".lstrip()

_REQUEUE = r"""
if [ "$code" -eq @PREEMPTED@ ] && [ "$ended_by_slurm" = no ]; then
    echo "paceline: preempted; job $SLURM_JOB_ID goes back to the queue" >&2
    scontrol requeue "$SLURM_JOB_ID" || echo "paceline: requeue failed; submit the script again to go on" >&2
fi
""".lstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTarget:
    """Where and with what the job runs.

    Args:
        job_name: As `squeue` shows it.
        time: Its limit, as Slurm writes times; None: the partition's.
        partition: None: the default one.
        account: None: the user's default.
        gpus_per_node: A number or type:number; None: none.
        cpus_per_task: Processors on each node; None: Slurm's default, one.
        memory: Of each node, as Slurm writes sizes; None: the partition's.
        job_output: The file for the output, with Slurm's patterns.
        working_dir: Where the script starts; None: where `sbatch` was called.
        notice_seconds: How long before its end the job is told.
        requeue: Whether a preempted job goes back to the queue.
        setup: Lines of bash that come before the job.
    """

    job_name: str = "paceline"
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    gpus_per_node: str | None = None
    cpus_per_task: int | None = None
    memory: str | None = None
    job_output: str | None = None
    working_dir: str | None = None
    notice_seconds: int = 60
    requeue: bool = True
    setup: tuple[str, ...] = ()

    def directives(self, nnodes: int) -> list[str]:
        """The options of `sbatch`, for `nnodes` nodes."""
        given = {
            "time": self.time,
            "partition": self.partition,
            "account": self.account,
            "gpus-per-node": self.gpus_per_node,
            "cpus-per-task": self.cpus_per_task,
            "mem": self.memory,
            "output": self.job_output,
            "chdir": self.working_dir,
        }
        return [
            f"--job-name={self.job_name}",
            f"--nodes={nnodes}",
            "--ntasks-per-node=1",
            *(f"--{name}={value}" for name, value in given.items() if value is not None),
            f"--signal=B:SIGUSR1@{self.notice_seconds}",
            *(("--requeue", "--open-mode=append") if self.requeue else ("--no-requeue",)),
        ]

    def faults(self) -> Iterator[Fault]:
        """Everything that is wrong with these values."""
        words = [
            SLURM_WORD.fault("--job-name", self.job_name),
            SLURM_TIME.fault("--time", self.time),
            SLURM_WORD.fault("--partition", self.partition),
            SLURM_WORD.fault("--account", self.account),
            SLURM_GPUS.fault("--gpus-per-node", self.gpus_per_node),
            SLURM_WORD.fault("--mem", self.memory),
            SLURM_WORD.fault("--job-output", self.job_output),
            SLURM_PATH.fault("--working-dir", self.working_dir),
            *(TEXT.fault("--setup", line) for line in self.setup),
        ]
        yield from (fault for fault in words if fault is not None)
        if self.cpus_per_task is not None and self.cpus_per_task < 1:
            yield Fault("--cpus-per-task", shown(self.cpus_per_task), "a number from 1 on", "write --cpus-per-task 8")
        if not 1 <= self.notice_seconds <= 65535:
            expected = "seconds from 1 to 65535"
            yield Fault("--notice", shown(self.notice_seconds), expected, "write --notice 60")


def sbatch_script(run: TrainingRun, target: SlurmTarget) -> str:
    """The script, for ``sbatch``.

    Raises:
        ConfigurationError: names everything that is wrong with the values.
    """
    refuse_any((*run.faults(), *target.faults()))
    srun = [
        f"--nodes={run.nnodes}",
        "--ntasks-per-node=1",
        # Since Slurm 22.05 `srun` no longer takes this over from `sbatch`.
        *((f"--cpus-per-task={target.cpus_per_task}",) if target.cpus_per_task else ()),
        "--export=ALL",
        "--mpi=none",  # Paceline wires MPI up itself
        "--kill-on-bad-exit=0",  # and decides itself what the end of one node means
    ]
    step = option_lines(["srun"], srun)
    lines = [
        "#!/bin/bash",
        "# Made by `paceline render slurm`. Submit it with: sbatch FILE",
        *(f"#SBATCH {directive}" for directive in target.directives(run.nnodes)),
        "",
        *exports(run.given_variables()),
        *target.setup,
        "",
        "set -o pipefail",
        "",
        _filled(_SECRET),
        _FORWARDING + (_TERM_IF_REQUEUED if target.requeue else _TERM_IF_NOT),
        *step[:-1],
        f"{step[-1]} \\",
        f"    {command_line(run.command())} &",
        _filled(_WAITING),
        *((_filled(_REQUEUE),) if target.requeue else ()),
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def _filled(text: str) -> str:
    return (
        text.replace("@SECRET_FILE@", environment.SECRET_FILE)
        .replace("@PREEMPTED@", str(EXIT_PREEMPTED))
        .replace("@CONFIGURATION@", str(EXIT_CONFIGURATION))
    )
