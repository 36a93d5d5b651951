"""What the launcher is asked to do: the description of a job, and the command of its workers. Pure."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MAX_SEED = 2**32 - 1
"""The largest that NumPy's generators take."""

BOOTSTRAP_COMMAND = (sys.executable, "-m", "paceline.bootstrap")
"""What prepares a worker and then runs the user's script in the same process."""

Binding = Literal["cores", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """A job on this host.

    >>> job = JobDescription(command=worker_command("train.py", []), num_workers=2, environment={})

    Args:
        command: What each worker executes.
        num_workers: How many of them.
        environment: The variables that workers inherit, the launcher's own as a rule.
        bind: ``cores``: each worker gets its own cores and thread counts; ``none``: the system decides.
        log_dir: Folder for ``job_0.log``, ``job_1.log``, …; None: no files.
        start_timeout_seconds: How long the group may take to form once every rank has asked for it.
        seed: Seed of Python, NumPy and TensorFlow on every rank; None: a random one.
        drop_in: Whether `tf.distribute`'s names are served by Paceline's classes.
        verbose: Whether to tell more about what the launcher does.

    Raises:
        ValueError: a value is out of range.
    """

    command: tuple[str, ...]
    num_workers: int
    environment: Mapping[str, str]
    bind: Binding = "cores"
    log_dir: Path | None = None
    start_timeout_seconds: float = 60.0
    seed: int | None = None
    drop_in: bool = True
    verbose: bool = False

    def __post_init__(self) -> None:
        faults = []
        if not self.command:
            faults.append("command: received nothing; expected what each worker executes")
        if self.num_workers < 1:
            faults.append(f"--workers: received {self.num_workers}; expected a number from 1 on")
        if self.bind not in ("cores", "none"):
            faults.append(f"--bind: received {self.bind!r}; expected 'cores' or 'none'")
        if not (self.start_timeout_seconds > 0 and math.isfinite(self.start_timeout_seconds)):
            faults.append(f"--start-timeout: received {self.start_timeout_seconds}; expected seconds above 0")
        if self.seed is not None and not 0 <= self.seed <= MAX_SEED:
            faults.append(f"--seed: received {self.seed}; expected an integer from 0 to {MAX_SEED}")
        if faults:
            raise ValueError("\n".join(faults))


def worker_command(target: str, arguments: Sequence[str], *, module: bool = False) -> tuple[str, ...]:
    """The command of a worker that runs the script `target`, or the module of that name.

    >>> worker_command("train", ["--epochs", "3"], module=True)[1:]
    ('-m', 'paceline.bootstrap', '-m', 'train', '--epochs', '3')
    """
    return (*BOOTSTRAP_COMMAND, *(["-m"] if module else []), target, *arguments)
