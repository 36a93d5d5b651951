"""`make demo`: the same file trained plainly and by two workers, and what that changed: the time, not the numbers.

plain, 1 worker      python train.py                        on the cores that one of the two workers gets
Paceline, 1 worker   paceline run --workers 1 train.py      on the same cores
Paceline, 2 workers  paceline run --workers 2 train.py      half of the cores each
one of them killed   the same with --max-restarts, --snapshot-dir and --chaos: a worker is killed, and the job goes on
plain, all cores     python train.py                        both shares, for a fair look at the cores
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from paceline.cluster.control_groups import core_quota
from paceline.launcher.output.terminal_line import TerminalLine
from paceline.launcher.workers.host_resources import share_cores, usable_cores

SCRIPT = Path(__file__).with_name("train.py")
NUM_WORKERS = 2
NUM_TRAIN = 8000
NUM_TEST = 2000
SNAPSHOTS = "snapshots"
"""In a folder that only the demo uses."""
KILLED_AT_STEP, SNAPSHOT_EVERY = 100, 30
"""In the second epoch of three; so 10 steps are done again."""
PROGRESS_INTERVAL_SECONDS = 5.0


@dataclass(frozen=True)
class Run:
    """One row of the table: how it is started, and on which cores."""

    name: str
    command: tuple[str, ...]
    cores: tuple[int, ...]
    is_killed: bool = False
    """A worker is killed in the middle of an epoch."""


@dataclass(frozen=True)
class Outcome:
    """What one run gave."""

    run: Run
    epoch_seconds: float
    """Median over the epochs after the first, which also traces the graph."""
    accuracy: float
    weights: tuple[np.ndarray, ...]
    num_processes: int
    processes_agree: bool
    """All processes of the run ended with the same weights and history, bit for bit."""
    seconds: float = 0.0
    """From start to end."""

    @property
    def examples_per_second(self) -> float:
        return NUM_TRAIN / self.epoch_seconds


def planned_runs(cores: Sequence[int]) -> tuple[Run, Run, Run, Run, Run]:
    """The five runs, on a host whose usable cores are `cores`."""
    plain = (sys.executable, str(SCRIPT))

    def by_workers(number: int, *options: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "paceline", "run", "--workers", str(number), *options, str(SCRIPT))

    kill = f"kill:rank={NUM_WORKERS - 1},step={KILLED_AT_STEP}"
    recovery = ("--max-restarts", "1", "--snapshot-dir", SNAPSHOTS, "--snapshot-every", str(SNAPSHOT_EVERY))
    share = share_cores(cores, NUM_WORKERS)[0].cores
    of_share = "of " + _counted(len(share), "core")
    return (
        Run(f"plain Keras, {_counted(len(share), 'core')}", plain, share),
        Run(f"Paceline, 1 worker {of_share}", by_workers(1), share),
        Run(f"Paceline, {NUM_WORKERS} workers {of_share}", by_workers(NUM_WORKERS), tuple(cores)),
        Run("  the same, one is killed", by_workers(NUM_WORKERS, *recovery, "--chaos", kill), tuple(cores), True),
        Run(f"plain Keras, {_counted(len(cores), 'core')}", plain, tuple(cores)),
    )


def outcome_of(run: Run, results: Sequence[Mapping[str, np.ndarray]], total: float = 0.0) -> Outcome:
    """What `results`, the files that the processes of `run` wrote, say; `total` seconds after its start it ended."""
    first = results[0]
    seconds = [result["epoch_seconds"] for result in results]
    compared = [name for name in first if name != "epoch_seconds"]
    return Outcome(
        run=run,
        epoch_seconds=float(np.median(np.max(seconds, axis=0)[1:])),
        accuracy=float(first["val_accuracy"][-1]),
        weights=tuple(first[name] for name in first if name.startswith("arr_")),
        num_processes=len(results),
        processes_agree=all(np.array_equal(first[name], other[name]) for other in results for name in compared),
        seconds=total,
    )


def largest_difference(one: Outcome, other: Outcome) -> float:
    """The largest absolute difference between two final weights."""
    return max(float(np.abs(a - b).max()) for a, b in zip(one.weights, other.weights, strict=True))


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """The outcomes beside each other, the first as the yardstick."""
    title = "MNIST CNN on real digits: the same file, seed, data order and global batch"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    for heading in ("seconds\nan epoch", "examples\nper s", "speed-up", "test\naccuracy", "weights\ndiffer"):
        table.add_column(heading, justify="right", no_wrap=True)
    first = outcomes[0]
    for outcome in outcomes:
        times = (
            f"{outcome.epoch_seconds:.2f}",
            f"{outcome.examples_per_second:,.0f}",
            f"{first.epoch_seconds / outcome.epoch_seconds:.2f} ×",
        )
        table.add_row(
            outcome.run.name,
            *(("-", "-", "-") if outcome.run.is_killed else times),
            f"{outcome.accuracy:.2%}",
            "-" if outcome is first else f"{largest_difference(first, outcome):.0e}",
        )
    return table


def caption_of(outcomes: Sequence[Outcome]) -> str:
    """What a reader must know to judge the table."""
    plain, _, spread, killed, _ = outcomes
    scale = max(float(np.abs(weights).max()) for weights in plain.weights)
    lines = [
        f"An epoch trains on {NUM_TRAIN:,} digits and tests on {NUM_TEST:,}; its time is the median after the "
        "first epoch, one run each, so it varies with whatever else this machine does.",
        "One Paceline worker computes what plain Keras computes, and is quicker where it updates the weights: in one "
        "pass over memory, where Keras makes one for each of Adam's twelve operations.",
        f"Differences are to the first row; the largest weight is {scale:.2f}. float32 rounds differently when sums "
        "are taken in another order, with more workers and with more threads alike, and training amplifies it. In "
        "float64 (train.py --floatx float64) nothing of it is left: the tests ask for 1e-9.",
    ]
    if spread.processes_agree:
        lines.append(f"The {NUM_WORKERS} workers ended with the same weights and history as each other, bit for bit.")
    else:
        lines.append(f"WRONG: the {NUM_WORKERS} workers ended with different weights or histories.")
    if is_equal_after_kill(spread, killed):
        lines.append(
            f"A worker was killed at step {KILLED_AT_STEP}, in the middle of an epoch. The job went on by itself, took "
            f"{killed.seconds - spread.seconds:.0f} s longer, and ended with the weights of the run without a kill, "
            "bit for bit."
        )
    else:
        lines.append("WRONG: after a kill the workers ended with other weights than without.")
    if len(spread.run.cores) < NUM_WORKERS:
        lines.append(f"This host offers {_counted(len(spread.run.cores), 'core')}: {NUM_WORKERS} workers share it.")
    return "\n".join(lines)


def is_equal_after_kill(without: Outcome, killed: Outcome) -> bool:
    """Whether a kill has changed no bit of the weights."""
    pairs = zip(without.weights, killed.weights, strict=True)
    return killed.processes_agree and all(np.array_equal(one, other) for one, other in pairs)


def train(run: Run) -> Outcome:
    """Runs it, its output passing through live, and reads what its processes wrote."""
    with tempfile.TemporaryDirectory(prefix="paceline-demo-") as folder:
        results = Path(folder, "results")
        results.mkdir()
        command = [str(Path(folder, SNAPSHOTS)) if word == SNAPSHOTS else word for word in run.command]
        begin = time.monotonic()
        code = run_visibly((*command, "--result", str(results)), run.cores)
        seconds = time.monotonic() - begin
        if code != 0:
            raise SystemExit(f"demo: `{' '.join(run.command)}` ended with exit code {code}; its output above says why")
        return outcome_of(run, [dict(np.load(path)) for path in sorted(results.glob("*.npz"))], seconds)


def run_visibly(command: Sequence[str], cores: Sequence[int]) -> int:
    """The exit code of `command`, bound to `cores`. Output to a terminal is its own; to a file it is made readable."""

    def bind() -> None:
        os.sched_setaffinity(0, cores)

    if sys.stdout.isatty():
        return subprocess.run(command, preexec_fn=bind, check=False).returncode
    pipe = subprocess.PIPE
    with subprocess.Popen(command, preexec_fn=bind, stdout=pipe, stderr=subprocess.STDOUT, bufsize=0) as process:
        assert process.stdout is not None
        _show_lines(process.stdout.fileno())
    return process.returncode


def _show_lines(descriptor: int) -> None:
    """Copies finished lines; of a progress bar that rewrites its line, what it shows every few seconds."""
    terminal = TerminalLine()
    shown_at = time.monotonic()
    while block := os.read(descriptor, 1 << 16):
        lines = [line.plain for line in terminal.feed(block)]
        if not lines and time.monotonic() - shown_at >= PROGRESS_INTERVAL_SECONDS:
            lines = [terminal.current.plain]
        if lines:
            print("\n".join(lines), flush=True)
            shown_at = time.monotonic()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def main() -> None:
    begin = time.monotonic()
    console = Console(highlight=False)
    quota = core_quota()
    cores = usable_cores()
    runs = planned_runs(cores if quota is None else cores[: max(1, int(quota))])
    outcomes = []
    for number, run in enumerate(runs, 1):
        shown = " ".join(Path(word).name if Path(word).is_absolute() else word for word in run.command)
        shown = shown.replace("python -m paceline", "paceline")
        console.print(f"\n[bold]{number} of {len(runs)}: {run.name}[/]   {shown}")
        outcomes.append(train(run))
    console.print()
    console.print(table_of(outcomes))
    console.print(caption_of(outcomes))
    console.print(f"The demo took {time.monotonic() - begin:.0f} s.")
    if not outcomes[2].processes_agree or not is_equal_after_kill(outcomes[2], outcomes[3]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
