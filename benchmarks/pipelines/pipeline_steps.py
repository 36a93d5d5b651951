"""``pipeline_steps.py STAGES CASE:SCHEDULE:MICRO_BATCHES[:OPTION]...``: what steps take, and of what.

The schedule `plain` is plain Keras's `fit` on the same batches, in one process. Options: `auto` (balance="auto"),
`recompute`, a number (steps_per_execution).

Rank 0 writes JSON to BENCH_RESULT: for each rank, for each variant, a list of rounds; see `measured`.
"""

import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import keras
from models import CASES

import paceline

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
WARM_UP = 2
"""Steps of a round that do not count."""


class Work:
    """Seconds that this stage computes in a step: in operations of the plan, and in the update."""

    operations = update = 0.0


def counted(function: Any, name: str) -> Any:
    def call(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = function(*arguments)
        setattr(Work, name, getattr(Work, name) + time.perf_counter() - begin)
        return result

    return call


class CountedUpdate:
    """What `_finish_function` makes, with its seconds."""

    def __init__(self, finish: Any) -> None:
        self._call, self.packed = counted(finish, "update"), finish.packed

    def __call__(self, *tensors: Any) -> Any:
        return self._call(*tensors)


def count_work() -> None:
    """From now on `Work` has the seconds of operations and updates."""
    from paceline.pipeline import batch_ends
    from paceline.pipeline.stage_walk import StageWalk

    make_finish = batch_ends._finish_function
    batch_ends._finish_function = lambda *args, **kwargs: CountedUpdate(make_finish(*args, **kwargs))
    StageWalk._compute = counted(StageWalk._compute, "operations")  # type: ignore[method-assign]  # waiting is outside


if os.environ.get("BENCH_PARTS") != "no":  # of older commits, where these names are elsewhere, whole steps are timed
    count_work()


class Steps(keras.callbacks.Callback):
    """Notes the seconds of steps, from the end of one to the end of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[float, float, float]] = []
        self._before: float | None = None

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        now = time.perf_counter()
        if self._before is not None:
            self.rows.append((now - self._before, Work.operations, Work.update))
        self._before = now
        Work.operations = Work.update = 0.0


def steps_together(variant: str) -> int:
    """Of an execution."""
    return next((int(option) for option in variant.split(":")[3:] if option.isdigit()), 1)


def model_of(variant: str, stages: int, balance: list[int] | str | None = None) -> keras.Model:
    name, schedule, number, *given = variant.split(":")
    keras.utils.set_random_seed(0)
    scope: Any = contextlib.nullcontext()
    if schedule != "plain":
        balance = "auto" if "auto" in given else balance
        strategy = paceline.PipelineStrategy(
            stages, int(number), schedule, balance=balance, recompute="recompute" in given
        )
        scope = strategy.scope()
    with scope:
        model = CASES[name].build()
        together = steps_together(variant)
        model.compile(keras.optimizers.SGD(0.001), CASES[name].loss, steps_per_execution=together)
    return model


def measured(variant: str, model: keras.Model, num_steps: int) -> list[float]:
    """The medians of seconds of a step, of the operations in it, and of the update."""
    name, _, number, *_ = variant.split(":")
    rows, together = CASES[name].rows * int(number), steps_together(variant)
    num_executions = -(-num_steps // together)
    x, y = CASES[name].data(rows * together * (num_executions + WARM_UP))
    steps = Steps()
    model.fit(x, y, batch_size=rows, shuffle=False, verbose=0, callbacks=[steps])
    return [statistics.median(column) / together for column in zip(*steps.rows[WARM_UP - 1 :], strict=True)]


def written(found: Any) -> None:
    """Rank 0 writes what all ranks have found."""
    result = Path(os.environ["BENCH_RESULT"])
    if paceline.world_size() == 1:
        result.write_text(json.dumps([found]))
        return
    own = Path(f"{result}.{paceline.rank()}")
    part = Path(f"{own}.part")
    part.write_text(json.dumps(found))
    part.rename(own)
    if paceline.rank() == 0:
        files = [Path(f"{result}.{rank}") for rank in range(paceline.world_size())]
        give_up_at = time.monotonic() + 60
        while not all(file.exists() for file in files):
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        result.write_text(json.dumps([json.loads(file.read_text()) for file in files]))


def main() -> None:
    stages, variants = int(sys.argv[1]), sys.argv[2:]
    models = {variant: model_of(variant, stages) for variant in variants}
    for variant, model in models.items():  # traces
        measured(variant, model, 1)
    found: dict[str, list[list[float]]] = {variant: [] for variant in models}
    for _ in range(ROUNDS):  # variants take turns
        for variant, model in models.items():
            found[variant].append(measured(variant, model, CASES[variant.partition(":")[0]].steps))
    written(found)


if __name__ == "__main__":
    main()
