"""Does input get faster with more workers? See README.md beside this file."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKER = str(HERE / "worker.py")
OLD = "2 workers, tf_keras and DATA"
WAYS = {
    "1 worker": (1, "divided"),
    "2 workers, whole batches on each": (2, "whole"),
    "2 workers": (2, "divided"),
}
KINDS = ("heavy", "before shuffle", "images", "light", "arrays")


def figures_of(kind: str, way: str, images: str, python: str | None) -> dict[str, Any]:
    """What the chief has written."""
    if way != OLD:
        workers, division = WAYS[way]
        command = [*harness.PACELINE, "run", "--workers", str(workers), WORKER, kind, division]
        return harness.run_job(command, environment={"BENCH_IMAGES": images})
    cluster = {"worker": [f"localhost:{port}" for port in harness.free_ports(2)]}

    def variables_of(rank: int) -> dict[str, str]:
        task = {"cluster": cluster, "task": {"type": "worker", "index": rank}}
        return {"TF_CONFIG": json.dumps(task), "BENCH_IMAGES": images}

    return harness.run_ranks([python or "", str(HERE / "auto_shard_worker.py"), kind], 2, variables_of)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    parser.add_argument("--processor", action="store_true", help="rows for each second of the chief's processor time")
    parser.add_argument("--kinds", help=f"some of {', '.join(KINDS)}, with commas between")
    options = parser.parse_args()
    figure = "rows_per_processor_second" if options.processor else "rows_per_second"
    old = harness.peer_python("tf_keras")
    ways = [*WAYS, *([OLD] if old else [])]
    kinds = options.kinds.split(",") if options.kinds else KINDS
    speeds: dict[tuple[str, str], list[float]] = {(kind, way): [] for kind in kinds for way in ways}
    with tempfile.TemporaryDirectory() as images:
        if "images" in kinds:
            subprocess.run([sys.executable, str(HERE / "input_kinds.py"), images], check=True, timeout=300)
        for round_ in range(1 if options.quick else options.repeats):
            for kind, way in speeds:
                speeds[kind, way].append(float(figures_of(kind, way, images, old)[figure]))
                print(f"round {round_ + 1}  {kind}  {way}: {speeds[kind, way][-1]:.0f} rows/s", flush=True)
    rows = []
    for kind in kinds:
        one, whole, two, *others = (speeds[kind, way] for way in ways)
        ratios = [[a / b for a, b in zip(two, base, strict=True)] for base in (one, whole, *others)]
        rows.append([kind, *(str(harness.Figure.of(one)) for one in (one, whole, two, *others, *ratios))])
    heads = ["2 workers / 1", "divided / whole", *(["2 workers / tf_keras"] if old else [])]
    print(harness.table(["input", *(f"{way}, rows/s" for way in ways), *heads], rows))


if __name__ == "__main__":
    main()
