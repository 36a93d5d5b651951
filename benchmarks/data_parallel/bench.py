"""What does a data-parallel step cost beyond its computation? See README.md beside this file."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

RANKS = 2


def keras(variant: str, model: str) -> dict[str, Any]:
    drop_in = [] if variant == "paceline" else ["--no-drop-in"]
    worker = [str(HERE / "keras_worker.py"), variant, model]
    return harness.run_job([*harness.PACELINE, "run", "--workers", str(RANKS), *drop_in, *worker])


def tf_keras(python: str) -> dict[str, Any]:
    ports = harness.free_ports(RANKS)
    cluster = {"worker": [f"localhost:{port}" for port in ports]}

    def variables_of(rank: int) -> dict[str, str]:
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})}

    return harness.run_ranks([python, str(HERE / "tf_keras_worker.py")], RANKS, variables_of)


def torch(python: str, variant: str) -> dict[str, Any]:
    [port] = harness.free_ports(1)

    def variables_of(rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
        }

    return harness.run_ranks([python, str(HERE / "torch_worker.py"), variant], RANKS, variables_of)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without-peers", action="store_true", help="only Paceline and the barrier")
    options = parser.parse_args()
    variants: dict[str, Callable[[], dict[str, Any]]] = {
        "cnn barrier": lambda: keras("barrier", "cnn"),
        "cnn paceline": lambda: keras("paceline", "cnn"),
        "small barrier": lambda: keras("barrier", "small_gradient"),
        "small paceline": lambda: keras("paceline", "small_gradient"),
    }
    if not options.without_peers:
        old, pytorch = harness.peer_python("tf_keras"), harness.peer_python("torch")
        if old is not None:
            variants["tf_keras RING"] = lambda: tf_keras(old)
        if pytorch is not None:
            variants["torch barrier"] = lambda: torch(pytorch, "barrier")
            variants["torch DDP gloo"] = lambda: torch(pytorch, "ddp")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for round_ in range(options.repeats):
        for name, variant in variants.items():
            results[name].append(variant())
            print(
                f"round {round_ + 1}/{options.repeats}  {name:15s} {results[name][-1]['step_ms']:.2f} ms",
                flush=True,
            )
    report(results)


def report(results: dict[str, list[dict[str, Any]]]) -> None:
    steps = {name: harness.Figure.of([one["step_ms"] for one in rounds]) for name, rounds in results.items()}
    raw = harness.Figure.of([one["raw_all_reduce_ms"] for one in results["cnn paceline"]])
    returns = harness.Figure.of([one["fit_returns_after_s"] for one in results["cnn paceline"]])
    print()
    print(
        harness.table(["variant", "step in ms: median (spread)"], [[name, str(step)] for name, step in steps.items()])
    )
    print(f"\nraw MPI all-reduce of the CNN's gradient: {raw} ms; fit returns {returns} s after its last step\n")
    overhead = steps["cnn paceline"].median - steps["cnn barrier"].median
    efficiency = steps["cnn barrier"].median / steps["cnn paceline"].median
    rows = [
        ["CNN: step overhead over the barrier / raw MPI all-reduce", f"{overhead / raw.median:.2f}", "≤ 1.1"],
        ["CNN: efficiency (barrier / Paceline)", f"{efficiency:.2f}", "> torch DDP's"],
        [
            "small gradient: efficiency (barrier / Paceline)",
            f"{steps['small barrier'].median / steps['small paceline'].median:.3f}",
            "≥ 0.97",
        ],
    ]
    if "tf_keras RING" in steps:
        ratio = steps["tf_keras RING"].median / steps["cnn paceline"].median
        rows.append(["CNN: tf_keras + MultiWorkerMirrored RING / Paceline", f"{ratio:.2f}", "≥ 3"])
    if "torch DDP gloo" in steps:
        ratio = steps["torch barrier"].median / steps["torch DDP gloo"].median
        rows.append(["CNN: torch DDP gloo's efficiency (barrier / DDP)", f"{ratio:.2f}", ""])
    print(harness.table(["ratio", "measured", "target"], rows))


if __name__ == "__main__":
    main()
