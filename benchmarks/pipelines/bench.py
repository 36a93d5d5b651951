"""What does a pipelined step cost beside the theory, and beside one process? See README.md beside this file."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

STAGES = 2
MICRO_BATCHES = (4, 8, 16)
Rounds = dict[str, list[list[float]]]
"""For each variant the rounds of a rank: seconds of a step, of the operations in it, of the update."""


def job(stages: int, variants: list[str], repeats: int, script: str = "pipeline_steps.py") -> list[Any]:
    """What `script` tells, for each rank; one core a worker."""
    bound = [] if stages > 1 else ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    command = [*bound, *harness.PACELINE, "run", "--workers", str(stages), "--no-drop-in"]
    variables = {"BENCH_ROUNDS": str(repeats)}
    found: Any = harness.run_job([*command, str(HERE / script), str(stages), *variants], environment=variables)
    return list(found)


def figure(values: list[float], scale: float = 1.0) -> str:
    return str(harness.Figure.of([scale * value for value in values]))


def slowest(found: list[Rounds], variant: str) -> list[tuple[float, float, float]]:
    """Of each round: the step, and the stage that computed most in it, with its update."""
    rounds = zip(*(of_rank[variant] for of_rank in found), strict=True)
    return [
        (max(step for step, _, _ in ranks), *max(((operations, update) for _, operations, update in ranks), key=sum))
        for ranks in rounds
    ]


def theory(case: str, repeats: int) -> None:
    """Steps beside (M + S - 1) / M times the slowest stage, and ZB-H1 beside 1F1B."""
    schedules = ("gpipe", "1f1b", "zb_h1")
    found = job(STAGES, [f"{case}:{name}:{number}" for name in schedules for number in MICRO_BATCHES], repeats)
    rows = []
    for name in schedules:
        for number in MICRO_BATCHES:
            rounds = slowest(found, f"{case}:{name}:{number}")
            steps, work, updates = map(list, zip(*rounds, strict=True))
            expected = [(number + STAGES - 1) / number * busy + update for _, busy, update in rounds]
            ratios = [step / seconds for step, seconds in zip(steps, expected, strict=True)]
            others = [step for step, *_ in slowest(found, f"{case}:1f1b:{number}")]
            beside = [step / other for step, other in zip(steps, others, strict=True)]
            cells = [figure(values, 1000) for values in (steps, work, updates)]
            is_zero_bubble = name == "zb_h1"
            target = {4: "≤ 0.93", 8: "≤ 0.97"}.get(number, "") if is_zero_bubble else "≤ 1.08"
            last = ["", figure(beside)] if is_zero_bubble else [figure(ratios), ""]
            rows.append([case, name, str(number), *cells, *last, target])
    headings = ["model", "schedule", "M", "step, ms", "slowest stage, ms", "its update, ms", "step / theory"]
    print(harness.table([*headings, "step / 1f1b's", "target"], rows), flush=True)


def one_process(case: str, repeats: int) -> None:
    """Two stages beside one process on one core, both with 16 micro-batches, and beside plain Keras."""
    most = max(MICRO_BATCHES)
    schedules = ("gpipe", "1f1b", "zb_h1")
    both = job(STAGES, [f"{case}:{name}:{most}" for name in schedules], repeats)
    [alone] = job(1, [f"{case}:gpipe:{most}", f"{case}:plain:{most}"], repeats)
    steps = {name: [step for step, *_ in slowest(both, f"{case}:{name}:{most}")] for name in schedules}
    rows = []
    for variant, target in (("gpipe", "≥ 1.65"), ("plain", "≥ 1.3")):
        seconds = harness.Figure.of([step for step, *_ in alone[f"{case}:{variant}:{most}"]])
        what = "plain Keras" if variant == "plain" else f"one stage, {most} micro-batches"
        faster = [f"{seconds.median / harness.Figure.of(steps[name]).median:.2f}" for name in schedules]
        rows.append([case, what, f"{1000 * seconds.median:.0f}", *faster, target])
    columns = [f"two stages, {name}" for name in schedules]
    print(harness.table(["model", "one process on one core", "step, ms", *columns, "target"], rows), flush=True)


def asynchronous(case: str, repeats: int) -> None:
    """PipeDream and 2BW beside 1F1B, all with 16 steps in an execution: without gaps, a step takes 0.8 of 1F1B's."""
    number, together = MICRO_BATCHES[0], 16
    names = ("1f1b", "pipedream", "pipedream_2bw")
    found = job(STAGES, [f"{case}:{name}:{number}:{together}" for name in names], repeats)
    steps = {name: [step for step, *_ in slowest(found, f"{case}:{name}:{number}:{together}")] for name in names}
    rows = []
    for name, own in steps.items():
        faster = [one / step for one, step in zip(steps["1f1b"], own, strict=True)]
        targets = ["", ""] if name == "1f1b" else [figure(faster), "≥ 1.2"]
        rows.append([case, name, str(number), figure(own, 1000), *targets])
    print(harness.table(["model", "schedule", "M", "step, ms", "1f1b's / step", "target"], rows), flush=True)


QUESTIONS: dict[str, tuple[Callable[[str, int], None], tuple[str, ...]]] = {
    "theory": (theory, ("small", "dense", "transformer")),
    "one_process": (one_process, ("small", "dense", "transformer")),
    "asynchronous": (asynchronous, ("small", "dense", "transformer")),
}
"""By name: what answers it, and the models that it is asked of."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--question", choices=QUESTIONS, action="append", help="only this one; may be repeated")
    parser.add_argument("--case", action="append", help="only this model; may be repeated")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for question in options.question or QUESTIONS:
        answer, cases = QUESTIONS[question]
        for case in cases:
            if options.case is None or case in options.case:
                print(f"\n{question}, {case}", flush=True)
                answer(case, options.repeats)


if __name__ == "__main__":
    main()
