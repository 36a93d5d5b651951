"""How close do predictions come to the jobs that they are of? See README.md beside this file."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402
import host_lab  # noqa: E402

EPOCHS = 4
"""Of a measured job; the first one is left out, as predictions leave out the first steps."""
SCRIPTS = {
    "MNIST CNN": [str(HERE.parents[1] / "examples" / "train.py"), "--epochs", str(EPOCHS)],
    "dense": [str(HERE / "dense.py"), str(EPOCHS)],
}
HERE_ALONE = "2 workers of this host"
MBIT = (1000.0, 100.0)
LOWEST, HIGHEST = 0.9, 1.1


def output_of(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    ended = subprocess.run(
        command,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=3 * harness.DEADLINE_SECONDS,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"[-4000:])
    return ended.stdout


def measured_seconds(events: Path) -> float:
    """Of a step: the median over the epochs of a job, without the first one."""
    told = [json.loads(line) for line in events.read_text().splitlines()]
    epochs = [one for one in told if one["event"] == "StepsTimed" and not one["is_whole_fit"]]
    return statistics.median(one["step_seconds"] for one in epochs[1:])


def predicted(output: str) -> dict[str, float]:
    """The step's seconds, with the ends of its range."""
    found: dict[str, float] = json.loads(output[output.index("{") :])["predictions"][0]["seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--quick", action="store_true", help="one round of the dense model, at 1 Gbit/s, to see that it works"
    )
    options = parser.parse_args()
    rounds: dict[tuple[str, str], list[tuple[dict[str, float], float]]] = {}
    with host_lab.two_hosts() as lab, tempfile.TemporaryDirectory() as folder:
        for number in range(1 if options.quick else options.repeats):
            for name, script in list(SCRIPTS.items())[1 if options.quick else 0 :]:
                events = Path(folder, f"{number} {name} here")
                found = predicted(output_of([*harness.PACELINE, "predict", "--workers", "2", "--json", "--", *script]))
                output_of([*harness.PACELINE, "run", "--workers", "2", "--events", str(events), *script])
                rounds.setdefault((name, HERE_ALONE), []).append((found, measured_seconds(events)))
                for mbit in MBIT[: 1 if options.quick else None]:
                    for host in lab.hosts:
                        lab.limit_bandwidth(host, mbit)
                    events = Path(folder, f"{number} {name} {mbit}")
                    words = ["--workers", "2", "--hosts", ",".join(host_lab.NAMES), "--json", "--", *script]
                    first = lab.command(host_lab.NAMES[0], [*harness.PACELINE, "predict", *words], lab.folder)
                    found = predicted(output_of(first))
                    job = host_lab.job(lab, [*host_lab.ON_BOTH, "--events", str(events), *script])
                    output_of(job, host_lab.TCP_ONLY)
                    where = f"2 hosts, {mbit:g} Mbit/s"
                    rounds.setdefault((name, where), []).append((found, measured_seconds(events)))
            print(f"round {number + 1}", flush=True)
    report(rounds)


def report(rounds: Mapping[tuple[str, str], Sequence[tuple[dict[str, float], float]]]) -> None:
    rows = []
    for (model, where), pairs in rounds.items():
        ratio = harness.Figure.of([found["value"] / seconds for found, seconds in pairs])
        within = sum(found["low"] <= seconds <= found["high"] for found, seconds in pairs)
        rows.append(
            [
                model,
                where,
                str(harness.Figure.of([1e3 * found["value"] for found, _ in pairs])),
                str(harness.Figure.of([1e3 * seconds for _, seconds in pairs])),
                str(ratio) if LOWEST <= ratio.median <= HIGHEST else f"**{ratio}**",
                f"{within} of {len(pairs)}",
            ]
        )
    heads = ["model", "job", "predicted, ms", "measured, ms", "predicted / measured", "measured within the range"]
    print(harness.table(heads, rows))
    print(f"\ntarget of predicted / measured: {LOWEST} to {HIGHEST}")


if __name__ == "__main__":
    main()
