"""How fast do models step that are not the demo's, with one and two workers? See README.md beside this file."""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKER = str(HERE / "worker.py")
MODELS = ("transformer", "resnet", "small_layers")
PLAIN = {"plain Keras, one core": 1, "plain Keras, two cores": 2}


def plain(model: str, cores: int) -> float:
    """Milliseconds a step."""
    threads = {"OMP_NUM_THREADS": str(cores), "TF_NUM_INTRAOP_THREADS": str(cores)}
    return harness.run_job([sys.executable, WORKER, model, str(cores)], environment=threads)["step_ms"]


def paceline(model: str, workers: int) -> float:
    """Milliseconds a step, with a core for each worker."""
    bound = [sys.executable, "-c", harness.BIND.format(core=min(os.sched_getaffinity(0)))]
    command = [*harness.PACELINE, "run", "--workers", str(workers), WORKER, model]
    return harness.run_job([*bound, *command] if workers == 1 else command)["step_ms"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for model in MODELS:
        found: dict[str, list[float]] = {}
        for _ in range(options.repeats):
            for name, cores in PLAIN.items():
                found.setdefault(name, []).append(plain(model, cores))
            for workers in (1, 2):
                found.setdefault(f"Paceline, workers of one core: {workers}", []).append(paceline(model, workers))
        alone = found["plain Keras, one core"]
        rows = []
        for name, times in found.items():
            ratios = [before / ours for before, ours in zip(alone, times, strict=True)]
            rows.append([name, str(harness.Figure.of(times)), str(harness.Figure.of(ratios))])
        print(f"\n{model}\n")
        print(
            harness.table(["job", "step in ms: median (spread)", "times as fast as plain on one core"], rows),
            flush=True,
        )


if __name__ == "__main__":
    main()
