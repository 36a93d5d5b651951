"""How long is a killed worker away, and who waits for it? See README.md beside this file."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "recovery")]

import harness  # noqa: E402
import psutil  # noqa: E402
from running import RunningJob  # noqa: E402

WORKERS = 2
STEPS_BEFORE_DEATH = 40
"""Of each worker."""
PROCESSES = WORKERS + 2
"""With chief and parameter server: as many standbys are held."""
VARIANTS: Mapping[str, Sequence[str]] = {"paceline run": (), "paceline run --standby": ("--standby",)}
TARGETS = {"paceline run": 8.0, "paceline run --standby": 2.0}
STAGES = ("start again", "import, serve, connect", "first step")


def deaths(options: Sequence[str]) -> list[dict[str, float]]:
    """One job, in which each worker is killed once: what each death has taken."""
    command = [*harness.PACELINE, "run", "--workers", str(WORKERS), "--ps", "1", "--max-restarts", "9", *options]
    with RunningJob([*command, str(HERE / "chief.py")]) as job:
        return [death(job, worker, PROCESSES if options else 0) for worker in range(WORKERS)]


def death(job: RunningJob, worker: int, num_standbys: int) -> dict[str, float]:
    """Kills `worker`, while the others train; waits for its next step."""
    now = time.time()
    for one in range(WORKERS):
        job.wait_for("the first steps", lambda one=one: len(steps(job, one, now)) >= STEPS_BEFORE_DEATH)
    if num_standbys:
        job.wait_for("ready standbys", lambda: job.standbys_wait(num_standbys))
    process = next(one for one in job.descendants() if is_worker(one, worker))
    killed_at = time.time()
    process.send_signal(signal.SIGKILL)
    runs_at = job.wait_for("a start", lambda: job.line_after(killed_at, f"worker {worker} runs again"))
    back_at = job.wait_for("a connection", lambda: job.line_after(killed_at, f"worker {worker} takes steps again"))
    [step_at, *_] = job.wait_for("a step after it", lambda: steps(job, worker, back_at))
    others = [at for one in range(WORKERS) if one != worker for at in steps(job, one, killed_at - 5.0)]
    gaps = [after - before for before, after in pairwise(sorted(others)) if killed_at <= after and before <= step_at]
    times = (killed_at, runs_at, back_at, step_at)
    stages = {name: after - before for name, (before, after) in zip(STAGES, pairwise(times), strict=True)}
    cold = min(one["at"] for one in job.marks()) - job.began_at
    return {"all": step_at - killed_at, "gap": max(gaps), "cold": cold, **stages}


def steps(job: RunningJob, worker: int, since: float) -> list[float]:
    """When `worker` has ended its steps."""
    return [one["at"] for one in job.marks() if one["step"] == worker and one["at"] > since]


def is_worker(process: psutil.Process, index: int) -> bool:
    try:
        variables = process.environ()
    except psutil.Error:
        return False
    # A standby keeps the variables that it was started with, and another process of its command is none.
    return variables.get("PACELINE_TASK") == f"worker {index}" and "paceline.bootstrap" in process.cmdline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="jobs of each variant, in turns")
    repeats = parser.parse_args().repeats
    results: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for round_ in range(repeats):
        for name, options in VARIANTS.items():
            results[name] += deaths(options)
            shown = ", ".join(f"{one['all']:.2f} s (gap {one['gap']:.2f})" for one in results[name][-WORKERS:])
            print(f"round {round_ + 1}/{repeats}  {name}: {shown}; load {os.getloadavg()[0]:.1f}", flush=True)
    report(results)


def report(results: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    def figure(name: str, what: str) -> str:
        return str(harness.Figure.of([one[what] for one in results[name]]))

    print()
    headers = ["seconds: median (spread)", "kill -9 to its next step", "target", "the others' longest gap", "target"]
    rows = [[name, figure(name, "all"), f"≤ {TARGETS[name]:g}", figure(name, "gap"), "≤ 1"] for name in VARIANTS]
    for row, name in zip(rows, VARIANTS, strict=True):
        row.append(figure(name, "cold"))
    headers.append("the job's start to its first step")
    print(harness.table(headers, rows))
    print()
    rows = [[name, *(figure(name, stage) for stage in STAGES)] for name in VARIANTS]
    print(harness.table(["seconds of each stage", *STAGES], rows))


if __name__ == "__main__":
    main()
