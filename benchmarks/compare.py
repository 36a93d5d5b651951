"""Is a commit slower than another? Both take turns in every measurement, on one machine; some minutes a question.

python benchmarks/compare.py OLD [NEW] [--only step models pipelines servers ...] [--rounds N]

OLD and NEW are commits; NEW is the working tree if it is left out. The benchmarks are those of the working tree, with
either `src` in PYTHONPATH. A ratio is NEW over OLD within a round, as a median over rounds.
"""

import argparse
import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
for folder in (HERE, HERE / "data_parallel", HERE / "recovery", HERE / "parameter_servers"):
    sys.path.insert(0, str(folder))

import harness  # noqa: E402
import side_by_side  # noqa: E402

Rounds = dict[str, list[tuple[float, float]]]
"""By quantity: for each round OLD's and NEW's value."""


def bench_of(question: str) -> ModuleType:
    """The benchmark's module; all have one name."""
    spec = importlib.util.spec_from_file_location(f"{question}_bench", HERE / question / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def sources(commits: list[str | None]) -> Iterator[list[Path]]:
    """The folders `src` of the commits; of None that of the working tree."""
    with tempfile.TemporaryDirectory() as directory:
        folders = []
        for number, commit in enumerate(commits):
            folder = Path(directory, str(number)) if commit else HERE.parent
            if commit:
                folder.mkdir()
                packed = subprocess.run(["git", "-C", HERE.parent, "archive", commit, "src"], stdout=-1, check=True)
                subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
            folders.append(folder / "src")
            found = subprocess.run(
                [sys.executable, "-c", "import paceline; print(paceline.__file__)"],
                env={**os.environ, "PYTHONPATH": str(folders[-1])}, stdout=-1, text=True, check=True,
            )  # fmt: skip
            assert Path(found.stdout.strip()).is_relative_to(folders[-1]), found.stdout
        yield folders


def in_turns(measure: Callable[[], Mapping[str, float]], folders: list[Path], rounds: int) -> Rounds:
    """What `measure` says with either source; it starts processes, which find the source in the environment."""
    found: Rounds = {}
    before = os.environ.get("PYTHONPATH")
    try:
        for round_ in range(rounds):
            of_both: list[Mapping[str, float]] = []
            for folder in folders if round_ % 2 == 0 else folders[::-1]:
                os.environ["PYTHONPATH"] = str(folder)
                of_both.append(measure())
            old, new = of_both if round_ % 2 == 0 else of_both[::-1]
            for name in old:
                found.setdefault(name, []).append((old[name], new[name]))
            print(f"  round {round_ + 1}/{rounds}", flush=True)
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before
    return found


def step(folders: list[Path], rounds: int) -> Rounds:
    """The MNIST CNN's step, and what it takes beyond that of plain Keras."""
    jobs: dict[str, tuple[str, Mapping[str, str]]] = {"plain": ("plain", {})}
    jobs |= {str(number): ("paceline", {"PYTHONPATH": str(folder)}) for number, folder in enumerate(folders)}
    blocks = side_by_side.measure(6 * rounds, jobs)

    def both(of: Callable[[side_by_side.Block, str], float]) -> list[tuple[float, float]]:
        return [(of(block, "0"), of(block, "1")) for block in blocks]

    return {
        "step, ms": both(lambda block, job: block[job]["step_ms"]),
        "step beyond plain Keras, ms": both(lambda block, job: block[job]["step_ms"] - block["plain"]["step_ms"]),
        "step's processor time beyond plain Keras, ms": both(
            lambda block, job: block[job]["cpu_ms"] - block["plain"]["cpu_ms"]
        ),
    }


def models(folders: list[Path], rounds: int) -> Rounds:
    """Steps of other models, of one and two workers."""
    bench = bench_of("models")
    found: Rounds = {}
    for model in bench.MODELS:
        for workers in (1, 2):
            name = f"step of {model.replace('_', ' ')}, workers: {workers}, ms"
            found |= in_turns(lambda ask=(name, model, workers): {ask[0]: bench.paceline(*ask[1:])}, folders, rounds)
    return found


def launch(folders: list[Path], rounds: int) -> Rounds:
    bench = bench_of("launch")
    [command] = [one for name, one in bench.VARIANTS.items() if "paceline" in name]
    in_turns(lambda: {"": bench.seconds(command)}, folders, 1)  # not counted: the first start compiles
    return in_turns(
        lambda: {"start to end of an empty script, 2 workers, s": bench.seconds(command)}, folders, 3 * rounds
    )


def recovery(folders: list[Path], rounds: int) -> Rounds:
    bench = bench_of("recovery")

    def measure() -> dict[str, float]:
        figures = bench.die_and_go_on(bench.paceline(60.0), stop_too=False)
        return {"start to the first step, s": figures["cold_s"], "death to the next step, s": figures["after_s"]}

    return in_turns(measure, folders, rounds)


def pipelines(folders: list[Path], rounds: int) -> Rounds:
    """Steps of a Transformer in two stages, eight micro-batches."""
    bench = bench_of("pipelines")
    variants = [f"transformer:{schedule}:8" for schedule in ("gpipe", "1f1b", "zb_h1")]

    def measure() -> dict[str, float]:
        os.environ["BENCH_PARTS"] = "no"
        found = bench.job(bench.STAGES, variants, 1)
        return {
            f"step of {variant.split(':')[1]}, two stages, ms": 1e3 * bench.slowest(found, variant)[0][0]
            for variant in variants
        }

    return in_turns(measure, folders, rounds)


def servers(folders: list[Path], rounds: int) -> Rounds:
    """A parameter server, two workers, and their chief."""
    bench = bench_of("parameter_servers")

    def measure() -> dict[str, float]:
        with bench.clusters.running(sys.executable, "paceline_process.py") as cluster:
            found = {}
            for together, steps in bench.STEPS.items():
                cluster.turn(f"fit {together}")  # not counted: it traces
                turn = cluster.turn(f"fit {together}")
                found[f"step under servers, {together} together, ms"] = 1e3 * turn.seconds / steps
            return found

    return in_turns(measure, folders, rounds)


def snapshots(folders: list[Path], rounds: int) -> Rounds:
    bench = bench_of("snapshots")

    def measure() -> dict[str, float]:
        found = bench.measured(2, 12, None)
        costs = [1e3 * (ours - alone) for ours, alone in zip(found["with_s"], found["without_s"], strict=True)]
        return {
            "20 steps with a snapshot, ms": 1e3 * harness.Figure.of(found["with_s"]).median,
            "a snapshot's cost to 20 steps, ms": harness.Figure.of(costs).median,
            "wait of the step that snapshots, ms": harness.Figure.of(found["waits_ms"]).median,
        }

    return in_turns(measure, folders, rounds)


def memory(folders: list[Path], rounds: int) -> Rounds:
    bench = bench_of("memory")

    def measure() -> dict[str, float]:
        ranks = bench.megabytes(bench.paceline(2), 60)
        return {
            "memory of a rank after 60 epochs, MB": harness.Figure.of([rank[-1] for rank in ranks]).median,
            "growth per epoch, MB": harness.Figure.of([bench.slope(rank) for rank in ranks]).median,
        }

    return in_turns(measure, folders, rounds)


QUESTIONS = {one.__name__: one for one in (step, models, pipelines, servers, launch, recovery, snapshots, memory)}


def rows(found: Rounds) -> list[list[Any]]:
    table = []
    for name, pairs in found.items():
        old, new = (harness.Figure.of([pair[side] for pair in pairs]) for side in (0, 1))
        # Of what may be about nothing, a difference says more than a ratio.
        is_ratio = min(old.smallest, new.smallest) > 0
        change = harness.Figure.of([ours / before if is_ratio else ours - before for before, ours in pairs])
        table.append([name, str(old), str(new), f"{'×' if is_ratio else '+'} {change}"])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    table = []
    with sources([options.old, options.new]) as folders:
        for question in options.only:
            print(f"== {question}", flush=True)
            table += rows(QUESTIONS[question](folders, options.rounds))
    print()
    print(
        harness.table(["median (spread)", options.old[:12], (options.new or "working tree")[:12], "new / old"], table)
    )


if __name__ == "__main__":
    main()
