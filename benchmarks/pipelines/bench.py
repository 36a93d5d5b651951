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


def prediction(case: str, repeats: int) -> None:
    """What the plan expects of a step and of each stage, beside what is measured; measured layers, best split."""
    schedules, number = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"), 8
    found = job(STAGES, [f"{case}:{name}:{number}" for name in schedules], repeats, "predicted_steps.py")
    rows = []
    for name in schedules:
        variant = f"{case}:{name}:{number}"
        expected, busy, _ = found[0]["expected"][variant]
        rounds = [of_rank["measured"][variant] for of_rank in found]
        steps = [max(step for step, *_ in ranks) for ranks in zip(*rounds, strict=True)]
        stages = [[busy_of / sum(one[1:]) for one in own] for busy_of, own in zip(busy, rounds, strict=True)]
        cells = [f"{1000 * expected:.0f}", figure(steps, 1000), figure([expected / step for step in steps])]
        rows.append([case, name, *cells, *map(figure, stages), "0.9–1.1"])
    columns = [f"stage {stage}, expected / measured" for stage in range(STAGES)]
    headings = ["model", "schedule", "expected, ms", "step, ms", "expected / measured", *columns, "target"]
    print(harness.table(headings, rows), flush=True)


def memory(case: str, repeats: int) -> None:
    """The most that each stage holds, beside what the plan expects; a job of its own for each."""
    del repeats
    rows, number = [], max(MICRO_BATCHES)
    for name in ("gpipe", "1f1b", "zb_h1", "gpipe:recompute", "1f1b:recompute"):
        schedule, *options = name.split(":")
        found = job(STAGES, [":".join([case, schedule, str(number), *options])], 1, "stage_memory.py")
        cells = [
            cell
            for measured, expected in found
            for cell in (f"{measured / 1e6:.0f}", f"{expected / 1e6:.0f}", f"{expected / measured:.2f}")
        ]
        rows.append([case, name, *cells, "0.85–1.15"])
    columns = [
        f"stage {stage}{what}"
        for stage in range(STAGES)
        for what in (" holds, MB", ", expected, MB", ", expected / measured")
    ]
    print(harness.table(["model", "schedule", *columns, "target"], rows), flush=True)


def uneven(case: str, repeats: int) -> None:
    """The split that measured layers give beside as many layers on each stage."""
    number = 8
    variants = [f"{case}:1f1b:{number}", f"{case}:1f1b:{number}:auto"]
    found = job(STAGES, variants, repeats)
    even, best = ([step for step, *_ in slowest(found, variant)] for variant in variants)
    faster = [one / other for one, other in zip(even, best, strict=True)]
    cells = [case, figure(even, 1000), figure(best, 1000), figure(faster), "≥ 1.25"]
    print(harness.table(["model", "as many layers, ms", "balance=auto, ms", "faster", "target"], [cells]), flush=True)


def peers(case: str, repeats: int) -> None:
    """The same model and batches in PyTorch, on the same two cores, in turn with Paceline."""
    python, number = harness.peer_python("torch"), 8
    if python is None:
        return
    here, there = ("gpipe", "1f1b", "zb_h1", "zb_v"), ("gpipe", "1f1b", "zb_v")
    steps: dict[str, list[float]] = {}
    for _ in range(repeats):
        found = job(STAGES, [f"{case}:{name}:{number}" for name in here], 1)
        [alone] = job(1, [f"{case}:gpipe:{number}"], 1)
        runs = {name: slowest(found, f"{case}:{name}:{number}") for name in here}
        runs["one process"] = slowest([alone], f"{case}:gpipe:{number}")
        for names, ranks in ((there, STAGES), (("torchgpipe",), 1), (("alone",), 1)):
            [told] = torch(python, [f"{case}:{name}:{number}" for name in names], ranks)
            runs |= {f"PyTorch {name}": slowest([told], f"{case}:{name}:{number}") for name in names}
        for name, rounds in runs.items():
            steps.setdefault(name, []).extend(step for step, *_ in rounds)

    def cells(name: str, alone: str) -> list[str]:
        if name not in steps:
            return ["", ""]
        return [figure(steps[name], 1000), f"{min(steps[alone]) / min(steps[name]):.2f}"]

    rows = []
    for name, theirs in [("one process", "alone"), *((name, name) for name in here), ("", "torchgpipe")]:
        own, other = cells(name, "one process"), cells(f"PyTorch {theirs}", "PyTorch alone")
        rows.append([case, name or "gpipe, in threads as torchgpipe", *own, *other])
    headings = ["model", "schedule", "Paceline, step, ms", "faster than one process"]
    print(harness.table([*headings, "PyTorch, step, ms", "faster than one process"], rows), flush=True)


def torch(python: str, variants: list[str], ranks: int) -> Any:
    """What `torch_stages.py` tells: a rank on each core, or one rank on all of them."""
    [port] = harness.free_ports(1)

    def variables_of(rank: int) -> dict[str, str]:
        connection = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "BENCH_ROUNDS": "1", **connection}

    command = [python, str(HERE / "torch_stages.py"), *variants]
    if ranks == 1:
        return harness.run_job(command, environment={**variables_of(0), "OMP_NUM_THREADS": "1"})
    return harness.run_ranks(command, ranks, variables_of)


QUESTIONS: dict[str, tuple[Callable[[str, int], None], tuple[str, ...]]] = {
    "theory": (theory, ("small", "dense", "transformer")),
    "one_process": (one_process, ("small", "dense", "transformer")),
    "asynchronous": (asynchronous, ("small", "dense", "transformer")),
    "uneven": (uneven, ("unet",)),
    "memory": (memory, ("long",)),
    "peers": (peers, ("small", "dense", "transformer")),
    "prediction": (prediction, ("dense", "transformer", "unet")),
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
