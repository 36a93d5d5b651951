"""How fast are steps under parameter servers? See README.md beside this file."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import clusters  # noqa: E402
import harness  # noqa: E402

STEPS = {"1": 60, "10": 120}
"""Measured steps of a turn, by `steps_per_execution` (`digits.py`)."""
TARGETS = {("tf_keras fit", "1"): 1.1, ("tf_keras fit", "10"): 1.3, ("loop", "1"): 0.9, ("loop", "10"): 0.9}
Round = Mapping[tuple[str, str], clusters.Turn]
"""By side and `steps_per_execution`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="rounds in which all variants take turns")
    parser.add_argument("--seconds", type=float, default=150, help="no round begins after so many")
    parser.add_argument("--without-peers", action="store_true", help="only Paceline")
    options = parser.parse_args()
    began = time.monotonic()
    peer = None if options.without_peers else harness.peer_python("tf_keras")
    rounds: list[Round] = []
    with clusters.running(sys.executable, "paceline_process.py") as paceline:
        if peer is None:
            measure({"paceline": (paceline, "fit")}, options, began, rounds)
        else:
            with clusters.running(peer, "peer_process.py") as old:
                sides = {"paceline": (paceline, "fit"), "tf_keras fit": (old, "fit"), "loop": (old, "loop")}
                measure(sides, options, began, rounds)
    report(rounds)


def measure(
    sides: Mapping[str, tuple[clusters.Cluster, str]], options: argparse.Namespace, began: float, rounds: list[Round]
) -> None:
    """The first round is left out: functions are traced in it."""
    for round_ in range(options.repeats + 1):
        if len(rounds) > 0 and time.monotonic() - began > options.seconds:
            break
        turns = {(side, k): cluster.turn(f"{what} {k}") for k in STEPS for side, (cluster, what) in sides.items()}
        if round_:
            rounds.append(turns)
        rates = ", ".join(f"{side} {k}: {STEPS[k] / turn.seconds:.3g}/s" for (side, k), turn in turns.items())
        print(f"round {round_}/{options.repeats}  {rates}", flush=True)


def report(rounds: Sequence[Round]) -> None:
    """Medians over rounds; ratios are taken within a round, in which all sides had a turn."""

    def figure(key: tuple[str, str]) -> harness.Figure:
        return harness.Figure.of([STEPS[key[1]] / turns[key].seconds for turns in rounds])

    def processor(key: tuple[str, str], roles: Sequence[str]) -> str:
        used = [sum(turns[key].processor[role] for role in roles) / STEPS[key[1]] * 1e3 for turns in rounds]
        return f"{harness.Figure.of(used).median:.3g}"

    rows = [
        [
            side,
            k,
            str(figure((side, k))),
            *(processor((side, k), roles) for roles in (("chief",), ("worker 0", "worker 1"), ("ps 0",))),
        ]
        for side, k in rounds[0]
    ]
    headers = ["side", "steps per execution", "steps/s: median (spread)", "chief, ms", "workers, ms", "ps, ms"]
    print()
    print(harness.table(headers, rows))
    ratios = []
    for (side, k), target in TARGETS.items():
        if (side, k) in rounds[0]:
            of = harness.Figure.of([turns[side, k].seconds / turns["paceline", k].seconds for turns in rounds])
            ratios.append([f"Paceline / {side}, steps_per_execution={k}", str(of), f"≥ {target}"])
    print(f"\n{processor_name()}\n")
    print(harness.table(["ratio: median (spread)", "measured", "target"], ratios))


def processor_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else "unknown processor"


if __name__ == "__main__":
    main()
