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
import side_by_side  # noqa: E402

RANKS = 2


def keras(model: str) -> dict[str, Any]:
    worker = [str(HERE / "keras_worker.py"), model]
    return harness.run_job([*harness.PACELINE, "run", "--workers", str(RANKS), "--no-drop-in", *worker])


def tf_keras(python: str) -> dict[str, Any]:
    ports = harness.free_ports(RANKS)
    cluster = {"worker": [f"localhost:{port}" for port in ports]}

    def variables_of(rank: int) -> dict[str, str]:
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})}

    return harness.run_ranks([python, str(HERE / "tf_keras_worker.py")], RANKS, variables_of)


def torch(python: str) -> dict[str, Any]:
    [port] = harness.free_ports(1)

    def variables_of(rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
        }

    return harness.run_ranks([python, str(HERE / "torch_worker.py")], RANKS, variables_of)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without-peers", action="store_true", help="only Paceline and the barrier")
    parser.add_argument("--user", action="store_true", help="only the three jobs that take turns, as a user measures")
    parser.add_argument("--blocks", type=int, default=30, help="turns of each of the three jobs")
    options = parser.parse_args()
    report_user(side_by_side.measure(options.blocks))
    if options.user:
        return
    variants: dict[str, Callable[[], dict[str, Any]]] = {
        "CNN": lambda: keras("cnn"),
        "small gradient": lambda: keras("small_gradient"),
    }
    if not options.without_peers:
        old, pytorch = harness.peer_python("tf_keras"), harness.peer_python("torch")
        if old is not None:
            variants["tf_keras RING"] = lambda: tf_keras(old)
        if pytorch is not None:
            variants["torch DDP gloo"] = lambda: torch(pytorch)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for round_ in range(options.repeats):
        for name, variant in variants.items():
            results[name].append(variant())
            print(f"round {round_ + 1}/{options.repeats}  {name}", flush=True)
    report(results)


def report_user(blocks: list[side_by_side.Block]) -> None:
    """Medians over blocks; differences and ratios are taken within a block, in which all jobs had a turn."""

    def median(of: Callable[[side_by_side.Block], float]) -> harness.Figure:
        return harness.Figure.of([of(block) for block in blocks])

    def row(job: str) -> list[str]:
        step, cpu = (median(lambda block, key=key: block[job][key]) for key in ("step_ms", "cpu_ms"))
        beyond = median(lambda block: block[job]["step_ms"] - block["plain"]["step_ms"])
        return [job, str(step), "" if job == "plain" else str(beyond), str(cpu)]

    headers = ["job", "step in ms: median (spread)", "beyond plain", "processor time in ms"]
    print(harness.table(headers, [row(job) for job in side_by_side.JOBS]))
    ours, raw = (
        median(lambda block, job=job: block[job]["step_ms"] - block["plain"]["step_ms"]).median
        for job in ("paceline", "raw")
    )
    efficiency = median(lambda block: block["plain"]["step_ms"] / block["paceline"]["step_ms"])
    rows = [
        ["cost of Paceline / cost of a raw MPI all-reduce (of the medians)", f"{ours / raw:.2f}", "≤ 1.1"],
        ["efficiency (plain / Paceline)", str(efficiency), ""],
    ]
    print()
    print(harness.table(["ratio", "measured", "target"], rows))
    print()


def report(results: dict[str, list[dict[str, Any]]]) -> None:
    """Medians over all blocks of all rounds; ratios are taken block by block, where both ran one after the other."""
    together, barrier, efficiency = {}, {}, {}
    for name, rounds in results.items():
        if name == "tf_keras RING":
            together[name] = harness.Figure.of([one["step_ms"] for one in rounds])
            continue
        pairs = [pair for one in rounds for pair in zip(one["together_ms"], one["barrier_ms"], strict=True)]
        together[name] = harness.Figure.of([ours for ours, _ in pairs])
        barrier[name] = harness.Figure.of([alone for _, alone in pairs])
        efficiency[name] = harness.Figure.of([alone / ours for ours, alone in pairs])
    table = [
        [name, str(figure), str(barrier.get(name, "")), str(efficiency.get(name, ""))]
        for name, figure in together.items()
    ]
    print()
    print(harness.table(["variant", "step in ms: median (spread)", "only a barrier", "barrier / step"], table))
    raw = harness.Figure.of([one["raw_all_reduce_ms"] for one in results["CNN"]])
    returns = harness.Figure.of([one["fit_returns_after_s"] for one in results["CNN"]])
    print(f"\nraw MPI all-reduce of the CNN's gradient: {raw} ms; fit returns {returns} s after its last step\n")
    overheads = [
        (ours - alone) / one["raw_all_reduce_ms"]
        for one in results["CNN"]
        for ours, alone in zip(one["together_ms"], one["barrier_ms"], strict=True)
    ]
    rows = [
        ["CNN: step overhead over the barrier / raw MPI all-reduce", str(harness.Figure.of(overheads)), "≤ 1.1"],
        ["CNN: efficiency (barrier / Paceline)", str(efficiency["CNN"]), "> torch DDP's"],
        ["small gradient: efficiency (barrier / Paceline)", str(efficiency["small gradient"]), "≥ 0.97"],
    ]
    if "tf_keras RING" in together:
        ratio = together["tf_keras RING"].median / together["CNN"].median
        rows.append(["CNN: tf_keras + MultiWorkerMirrored RING / Paceline", f"{ratio:.2f}", "≥ 3"])
    if "torch DDP gloo" in efficiency:
        rows.append(["CNN: torch DDP gloo's efficiency (barrier / DDP)", str(efficiency["torch DDP gloo"]), ""])
    print(harness.table(["ratio: median (spread)", "measured", "target"], rows))


if __name__ == "__main__":
    main()
