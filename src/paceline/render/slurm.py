"""Slurm: an sbatch script that starts one `paceline run` on each node.

Ranks, hosts and port are found on the nodes from Slurm's own variables. What the script adds is a secret file, and what
must happen when Slurm announces the end: tell the job, wait for its snapshot, and queue it again.
"""

from dataclasses import dataclass
from typing import ClassVar

from paceline.cluster import job_options
from paceline.cluster.options import OptionTable, option
from paceline.cluster.value_checks import Grammar, Range, refuse_any
from paceline.errors import EXIT_CONFIGURATION, EXIT_PREEMPTED
from paceline.render.shell_text import command_line, exports, option_lines
from paceline.render.training_run import TEXT, TrainingRun

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

_SLURM_WORD = Grammar(
    r"[A-Za-z0-9_.,:%@=+/~-]+", "a word without spaces, quotes and '#': sbatch reads them as its own", "gpu-long"
)

_SLURM_PATH = Grammar(
    r"/[A-Za-z0-9_.,:@=+/~-]*", "an absolute path without spaces, quotes and '#'", "/home/me/my-job", 4096
)

_SLURM_TIME = Grammar(
    r"[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|UNLIMITED",
    "a time limit of Slurm: minutes, h:mm:ss or days-hh:mm:ss",
    "12:00:00",
)

_SLURM_GPUS = Grammar(r"([A-Za-z0-9_.-]+:)?[1-9][0-9]*", "a number of GPUs, or type:number", "a100:4")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTarget(OptionTable):
    """Where and with what the job runs: the options of ``paceline render slurm``."""

    PREFIX: ClassVar[str] = "SLURM_"

    job_name: str = option("paceline", "The name of the job, as squeue shows it.", metavar="NAME", check=_SLURM_WORD)
    time: str | None = option(
        None, "The job's time limit: minutes, h:mm:ss or days-hh:mm:ss.", metavar="TIME", check=_SLURM_TIME
    )
    partition: str | None = option(None, "The partition of the job.", metavar="NAME", check=_SLURM_WORD)
    account: str | None = option(None, "The account that is charged.", metavar="NAME", check=_SLURM_WORD)
    gpus_per_node: str | None = option(None, "GPUs of each node.", metavar="[TYPE:]N", check=_SLURM_GPUS)
    cpus_per_task: int | None = option(
        None,
        "Processors on each node; without it Slurm gives one.",
        metavar="N",
        check=Range("a number from 1 on", "8", lowest=1),
    )
    mem: str | None = option(None, "Memory of each node.", metavar="SIZE", check=_SLURM_WORD)
    job_output: str | None = option(
        None, "sbatch's --output, such as logs/%j.out.", metavar="PATTERN", check=_SLURM_WORD
    )
    notice_seconds: int = option(
        60,
        "How long before the time limit the job is told to write a snapshot.",
        metavar="SECONDS",
        check=Range("seconds from 1 to 65535", "60", lowest=1, highest=65535),
    )
    requeue: bool = option(True, "Whether Slurm queues a preempted job (exit code 75) again.")
    setup: tuple[str, ...] = option(
        (),
        "A line of bash to run before the job, such as 'module load cuda'; repeat for more.",
        metavar="BASH",
        check=TEXT,
        separator="\n",
    )
    working_dir: str | None = option(
        None, "The working directory of the script on the hosts.", metavar="FOLDER", check=_SLURM_PATH
    )

    def directives(self, nnodes: int) -> list[str]:
        """The options of `sbatch`, for `nnodes` nodes."""
        given = {
            "time": self.time,
            "partition": self.partition,
            "account": self.account,
            "gpus-per-node": self.gpus_per_node,
            "cpus-per-task": self.cpus_per_task,
            "mem": self.mem,
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


def sbatch_script(run: TrainingRun, target: SlurmTarget) -> str:
    """The script, for ``sbatch``.

    Raises:
        ConfigurationError: names everything that is wrong with the values.
    """
    refuse_any("the command line", "[option]", run.faults())
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
        text.replace("@SECRET_FILE@", job_options.SECRET_FILE)
        .replace("@PREEMPTED@", str(EXIT_PREEMPTED))
        .replace("@CONFIGURATION@", str(EXIT_CONFIGURATION))
    )
