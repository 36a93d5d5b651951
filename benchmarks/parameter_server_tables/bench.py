"""What does a step on a large table cost on parameter servers? See README.md beside this file."""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

LARGE, SMALL = "1000000", "10000"
TOUCHED_BYTES = 1280 * 64 * 4
VARIANTS = {
    "Adagrad, 10,000 rows": ("keras", ["adagrad", SMALL]),
    "Adagrad, 1,000,000 rows": ("keras", ["adagrad", LARGE]),
    "Adam with lazy_rows, 10,000 rows": ("keras", ["adam", SMALL, "--lazy"]),
    "Adam with lazy_rows, 1,000,000 rows": ("keras", ["adam", LARGE, "--lazy"]),
    "Adam without lazy_rows, 1,000,000 rows": ("keras", ["adam", LARGE]),
    "tf_keras Adagrad, 1,000,000 rows": ("tf_keras", ["adagrad", LARGE]),
    "tf_keras Adam, 1,000,000 rows": ("tf_keras", ["adam", LARGE]),
}
DENSE_STEPS = "10"
"""Of those that update all rows."""
DENSE = ("Adam without lazy_rows, 1,000,000 rows", "tf_keras Adam, 1,000,000 rows")
RATIOS = [
    ("Adagrad: 1,000,000 rows against 10,000", "Adagrad, 1,000,000 rows", "Adagrad, 10,000 rows", "≤ 1.3"),
    (
        "Adam with lazy_rows: 1,000,000 rows against 10,000",
        "Adam with lazy_rows, 1,000,000 rows",
        "Adam with lazy_rows, 10,000 rows",
        "≤ 1.3",
    ),
    ("Adagrad: tf_keras against Paceline", "tf_keras Adagrad, 1,000,000 rows", "Adagrad, 1,000,000 rows", "≥ 0.9"),
    (
        "Adam: tf_keras against Paceline with lazy_rows",
        "tf_keras Adam, 1,000,000 rows",
        "Adam with lazy_rows, 1,000,000 rows",
        "≥ 20",
    ),
    (
        "Adam: without lazy_rows against with",
        "Adam without lazy_rows, 1,000,000 rows",
        "Adam with lazy_rows, 1,000,000 rows",
        "",
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of few steps, without peers")
    parser.add_argument("--pause", action="store_true", help="only how long steps wait for snapshots of a table")
    options = parser.parse_args()
    repeats, steps = (1, "10") if options.quick else (options.repeats, "60")
    if options.pause:
        pause(repeats)
        return
    pythons = {"keras": sys.executable, "tf_keras": None if options.quick else harness.peer_python("tf_keras")}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for round_ in range(repeats):
        for name, (library, arguments) in VARIANTS.items():
            if python := pythons[library]:
                num = DENSE_STEPS if name in DENSE else steps
                command = [python, str(HERE / "table_steps.py"), library, *arguments, "--steps", num]
                rounds[name].append(harness.run_job(command))
                print(f"round {round_ + 1}/{repeats}  {name}: {rounds[name][-1]['milliseconds']:.3g} ms", flush=True)
    rounds = {name: results for name, results in rounds.items() if results}
    rows = [
        [
            name,
            str(harness.Figure.of([result["milliseconds"] for result in results])),
            str(harness.Figure.of([result["bytes"] / TOUCHED_BYTES for result in results])),
        ]
        for name, results in rounds.items()
    ]
    print()
    print(harness.table(["variant", "ms a step: median (spread)", "bytes a step / touched rows (≤ 3)"], rows))
    ratios = [
        [
            question,
            str(
                harness.Figure.of(
                    [
                        one["milliseconds"] / other["milliseconds"]
                        for one, other in zip(rounds[of], rounds[to], strict=True)
                    ]
                )
            ),
            target,
        ]
        for question, of, to, target in RATIOS
        if of in rounds and to in rounds
    ]
    print()
    print(harness.table(["ratio of times", "median (spread)", "target"], ratios))


def pause(repeats: int) -> None:
    """How long steps wait for a snapshot of a 512 MB table."""
    rounds = []
    for round_ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            options = ["--workers", "1", "--ps", "2", "--snapshot-dir", folder, "--snapshot-every", "40"]
            command = [*harness.PACELINE, "run", *options, "--snapshot-keep", "1", str(HERE / "snapshot_pause.py")]
            rounds.append(harness.run_job(command))
        print(f"round {round_ + 1}/{repeats}  {rounds[-1]}", flush=True)
    rows = [
        ["a step, ms", str(harness.Figure.of([1e3 * one["step"] for one in rounds]))],
        [
            "the wait of steps for a snapshot, ms",
            str(harness.Figure.of([1e3 * p for one in rounds for p in one["pauses"]])),
        ],
        ["the wait for the first, ms", str(harness.Figure.of([1e3 * one["first"] for one in rounds]))],
    ]
    print()
    print(harness.table([f"a table of {rounds[0]['megabytes']:.0f} MB", "measured: median (spread)"], rows))


if __name__ == "__main__":
    main()
