"""What does a pipelined step cost beside the theory, and beside one process? See README.md beside this file."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

MICRO_BATCHES = (4, 8, 16)
SCHEDULES = ("gpipe", "1f1b", "zb_h1")
STAGES = 2
MOST = {"gpipe": "≤ 1.08", "1f1b": "≤ 1.08"}


def job(stages: int, variants: list[str], repeats: int) -> list[dict[str, list[list[float]]]]:
    """For each rank, for each variant, (seconds of a step, of the stage's work) in each round; one core a worker."""
    bound = [] if stages > 1 else ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    command = [*bound, *harness.PACELINE, "run", "--workers", str(stages), "--no-drop-in"]
    variables = {"BENCH_ROUNDS": str(repeats)}
    found: Any = harness.run_job(
        [*command, str(HERE / "pipeline_steps.py"), str(stages), *variants], environment=variables
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    repeats = options.repeats
    found = job(STAGES, [f"{name}:{number}" for name in SCHEDULES for number in MICRO_BATCHES], repeats)
    rows = []
    for name in SCHEDULES:
        for number in MICRO_BATCHES:
            rounds = [of_stage[f"{name}:{number}"] for of_stage in found]
            steps = [max(of_round[0] for of_round in one) for one in zip(*rounds, strict=True)]
            busy = [max(of_round[1] for of_round in one) for one in zip(*rounds, strict=True)]
            theory = [seconds * (number + STAGES - 1) / number for seconds in busy]
            ratios = harness.Figure.of([step / seconds for step, seconds in zip(steps, theory, strict=True)])
            in_ms = [str(harness.Figure.of([1000 * value for value in values])) for values in (steps, busy)]
            rows.append([name, str(number), *in_ms, str(ratios), MOST.get(name, "")])
    print()
    headings = ["schedule", "M", "step, ms", "slowest stage, ms", "step / ((M + S - 1) / M x slowest stage)", "target"]
    print(harness.table(headings, rows))

    most = max(MICRO_BATCHES)
    [alone] = job(1, [f"gpipe:{most}", f"plain:{most}"], repeats)
    best = {name: min(step for step, _ in found[0][f"{name}:{most}"]) for name in SCHEDULES}
    rows = []
    for variant, target in ((f"gpipe:{most}", "≥ 1.65"), (f"plain:{most}", "≥ 1.3")):
        seconds = harness.Figure.of([step for step, _ in alone[variant]])
        what = "plain Keras" if variant.startswith("plain") else f"one stage, {most} micro-batches"
        rows.append(
            [what, f"{1000 * seconds.median:.0f}", *(f"{seconds.median / best[name]:.2f}" for name in SCHEDULES)]
        )
        rows[-1].append(target)
    print()
    print(
        harness.table(
            ["one process on one core", "step, ms", *(f"over two stages, {n}" for n in SCHEDULES), "target"], rows
        )
    )


if __name__ == "__main__":
    main()
