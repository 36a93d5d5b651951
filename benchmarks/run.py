"""Runs the benchmarks: ``python benchmarks/run.py [question …] [--repeats N]``."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
QUESTIONS = (
    "launch",
    "by_hand",
    "all_reduce",
    "data_parallel",
    "fused_updates",
    "models",
    "parameter_servers",
    "snapshots",
    "recovery",
    "memory",
    "hosts_start",
    "rendezvous",
    "hosts_all_reduce",
    "hosts_bandwidth",
    "parameter_server_tables",
    "pipelines",
    "parameter_server_recovery",
    "shares",
    "staleness",
    "ingestion",
    "predict",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], default=list(QUESTIONS))
    parser.add_argument("--repeats", type=int, default=5, help="rounds in which the variants take turns")
    options = parser.parse_args()
    failed = 0
    for question in options.questions:
        print(f"== {question}", flush=True)
        command = [sys.executable, str(HERE / question / "bench.py"), "--repeats", str(options.repeats)]
        failed |= subprocess.run(command, check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
