"""What does starting by hand take? Seconds from the start of two processes with TF_CONFIG to their first collective.

``--against FOLDER``: also with the ``src`` folder of another version, in turns.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

SCRIPTS = ("train.py", "join.py")


def free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def seconds(script: str, source: Path | None) -> float:
    """From the start of both processes to the end of the first collective on both."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports()]}
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    variables["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if source is not None:
        variables["PYTHONPATH"] = str(source)
    begin = time.monotonic()
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / script)],
            env={**variables, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [rank.communicate(timeout=harness.DEADLINE_SECONDS) for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise RuntimeError("\n".join(errors for _, errors in ended)[-4000:])
    return max(json.loads(said.splitlines()[-1])["done"] for said, _ in ended) - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    options = parser.parse_args()
    versions: dict[str, Path | None] = {"this version": None}
    if options.against is not None:
        versions["the other version"] = options.against.resolve()
    variants = [(script, name) for script in SCRIPTS for name in versions]
    rounds: dict[tuple[str, str], list[float]] = {variant: [] for variant in variants}
    for number in range(options.repeats + 1):
        for script, name in variants if number % 2 else reversed(variants):
            took = seconds(script, versions[name])
            if number > 0:  # the first start compiles
                rounds[script, name].append(took)
                print(f"{script}, {name}: {took:.2f} s", file=sys.stderr, flush=True)
    table = [[script, name, str(harness.Figure.of(values))] for (script, name), values in rounds.items()]
    print(harness.table(["script", "Paceline", "seconds: median (spread)"], table))


if __name__ == "__main__":
    main()
