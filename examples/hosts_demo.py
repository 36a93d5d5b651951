"""`make hosts-demo`: one command on a "laptop" trains on two "machines" over ssh. All three are on this computer.

laptop ── ssh ──► alpha  worker 0 ─┐
       └─ ssh ──► beta   worker 1 ─┴─ gradients over a network of their own

The machines are namespaces (tests/hosts/lab.py): each has a name, network interface, processes and an OpenSSH server of
its own, and half of this computer's cores. Needs Linux, root, openssh-server and iproute2; nothing of it stays.
"""

import shlex
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from demo import run_visibly
from rich import box
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "hosts")]

import lab as labs  # noqa: E402
import secure_shell  # noqa: E402

EPOCHS = 2
NUM_TRAIN = 2000
SCRIPT = (Path(__file__).with_name("train.py"), "--epochs", str(EPOCHS), "--num-train", str(NUM_TRAIN))
MAX_DIFFERENCE = 1e-9
"""Of two weights that float64 computes in another order."""


@dataclass(frozen=True)
class Outcome:
    """What one way of training gave."""

    name: str
    epoch_seconds: float
    """Of the last epoch; the first also traces the graph."""
    weights: tuple[np.ndarray, ...]
    num_processes: int
    processes_agree: bool


def train(lab: labs.Lab, name: str, host: str, launcher: tuple[str, ...]) -> Outcome:
    """Trains from `host`, its output passing through live.

    Args:
        lab: The machines.
        name: Of this way, for the table.
        host: Where the command is typed.
        launcher: What comes before the script.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-hosts-demo-") as results:
        words = [sys.executable, *launcher, *SCRIPT, "--floatx", "float64", "--result", results]
        code = run_visibly(lab.command(host, words, REPOSITORY), lab.cores(host))
        if code != 0:
            raise SystemExit(f"hosts-demo: `{shlex.join(map(str, words))}` ended with exit code {code}")
        saved = [dict(np.load(path)) for path in sorted(Path(results).glob("*.npz"))]
    weights = [tuple(one[key] for key in one if key.startswith("arr_")) for one in saved]
    return Outcome(
        name=name,
        epoch_seconds=max(float(one["epoch_seconds"][-1]) for one in saved),
        weights=weights[0],
        num_processes=len(saved),
        processes_agree=all(
            np.array_equal(mine, first) for other in weights for mine, first in zip(other, weights[0], strict=True)
        ),
    )


def largest_difference(one: Outcome, other: Outcome) -> float:
    """The largest absolute difference between two final weights."""
    return max(float(np.abs(a - b).max()) for a, b in zip(one.weights, other.weights, strict=True))


def table_of(alone: Outcome, spread: Outcome) -> Table:
    """Both ways beside each other."""
    table = Table(title="MNIST CNN, float64: the same file, seed and global batch", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("workers", "examples\nper s", "speed-up", "weights\ndiffer"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in (alone, spread):
        table.add_row(
            outcome.name,
            str(outcome.num_processes),
            f"{NUM_TRAIN / outcome.epoch_seconds:,.0f}",
            f"{alone.epoch_seconds / outcome.epoch_seconds:.2f} ×",
            "-" if outcome is alone else f"{largest_difference(alone, outcome):.0e}",
        )
    return table


def is_right(alone: Outcome, spread: Outcome) -> bool:
    """Whether two workers, which agree, computed what one computes."""
    return spread.processes_agree and spread.num_processes == 2 and largest_difference(alone, spread) <= MAX_DIFFERENCE


def main() -> None:
    begin = time.monotonic()
    console = Console(highlight=False)
    reason = labs.why_not() or secure_shell.why_not()
    if reason:
        raise SystemExit(f"hosts-demo: cannot make machines here (needs Linux and root): {reason}")
    with labs.Lab(2, ssh=True, laptop=True, own_cores=True) as lab:
        slots = ",".join(f"{host}:1" for host in lab.hosts)
        for host in lab.hosts:
            cores = ", ".join(map(str, lab.cores(host)))
            console.print(f"{host:8} {lab.address(host)}   cores {cores}   sshd")
        console.print(f"\n[bold]1 of 2: one machine[/]   alpha$ python {SCRIPT[0].name}")
        alone = train(lab, "plain Keras on alpha", "alpha", ())
        before = {host: lab.bytes(host) for host in lab.hosts}
        console.print(f"\n[bold]2 of 2: two machines[/]   laptop$ paceline run --hosts {slots} {SCRIPT[0].name}")
        spread = train(lab, "Paceline on alpha and beta", labs.LAPTOP, ("-m", "paceline", "run", "--hosts", slots))
        console.print()
        console.print(table_of(alone, spread))
        for host in lab.hosts:
            received, sent = (now - then for now, then in zip(lab.bytes(host), before[host], strict=True))
            console.print(f"{host:8} received {received / 1e6:,.0f} MB, sent {sent / 1e6:,.0f} MB over its interface")
    verdict = "The two workers ended with the same weights as each other, bit for bit, and with those of one worker."
    right = is_right(alone, spread)
    console.print(verdict if right else "WRONG: the workers' weights differ from each other's, or from one worker's.")
    console.print(f"The demo took {time.monotonic() - begin:.0f} s; nothing of the machines is left.")
    if not right:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
