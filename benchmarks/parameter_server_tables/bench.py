"""What does a step on a large table cost on parameter servers? See README.md beside this file."""

import argparse
import sys
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
    "tf_keras Adagrad, 1,000,000 rows": ("tf_keras", ["adagrad", LARGE]),
    "tf_keras Adam, 1,000,000 rows": ("tf_keras", ["adam", LARGE]),
}
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
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of few steps, without peers")
    options = parser.parse_args()
    repeats, steps = (1, "10") if options.quick else (options.repeats, "60")
    pythons = {"keras": sys.executable, "tf_keras": None if options.quick else harness.peer_python("tf_keras")}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for round_ in range(repeats):
        for name, (library, arguments) in VARIANTS.items():
            if python := pythons[library]:
                command = [python, str(HERE / "table_steps.py"), library, *arguments, "--steps", steps]
                rounds[name].append(harness.run_job(command))
                print(f"round {round_ + 1}/{repeats}  {name}", flush=True)
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


if __name__ == "__main__":
    main()
