"""How fast are TFRecord files read by two workers? See README.md beside this file."""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKER = str(HERE / "records_worker.py")
WAYS = ["naive", "naive, divided", "dealt by file", "records", "records, parse", "grain"]
BASES = ("naive", "dealt by file", "grain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--processor", action="store_true", help="rows for each second of the chief's processor time")
    options = parser.parse_args()
    if importlib.util.find_spec("grain") is None:
        sys.exit("the peer is missing: pip install grain")
    figure = "rows_per_processor_second" if options.processor else "rows_per_second"
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as directory:
        files = str(Path(directory) / "files")
        subprocess.run([sys.executable, WORKER, files, "make"], check=True)
        for round_ in range(options.repeats):
            for way in WAYS:
                command = [*harness.PACELINE, "run", "--workers", "2", WORKER, files, way]
                speeds[way].append(float(harness.run_job(command)[figure]))
                print(f"round {round_ + 1}  {way}: {speeds[way][-1]:.0f} rows/s", flush=True)
    rows = []
    for way in WAYS:
        over = [[a / b for a, b in zip(speeds[way], speeds[base], strict=True)] for base in BASES]
        rows.append([way, *(str(harness.Figure.of(values)) for values in (speeds[way], *over))])
    print(harness.table(["way", "rows/s", *(f"over {base}" for base in BASES)], rows))


if __name__ == "__main__":
    main()
