"""``stage_memory.py STAGES CASE:SCHEDULE:MICRO_BATCHES[:recompute]``: the most memory that each stage holds in a step.

Writes for each rank (measured bytes, expected bytes). Measured is the peak of resident memory over some steps, less
what the process has, besides weights, when the model has been trained with micro-batches of one row.
"""

import math
import sys
from pathlib import Path

import keras
import numpy as np
import pipeline_steps
from models import CASES

import paceline
from paceline.comm.world import current_world
from paceline.pipeline.model_profile import profile_of
from paceline.pipeline.pipelined_model import pipelined
from paceline.plan.comparison import Pipeline, predict
from paceline.plan.schedules import schedule_named


class Peak(keras.callbacks.Callback):
    """The peak of the process from the second step on."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 0:
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew


def status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    stages, variant = int(sys.argv[1]), sys.argv[2]
    name, schedule, number, *given = variant.split(":")
    case = CASES[name]
    rows = case.rows * int(number)
    model = pipeline_steps.model_of(variant, stages)
    x, y = case.data(int(number))
    model.fit(x, y, batch_size=int(number), shuffle=False, verbose=0)
    idle = status_bytes("VmRSS")
    x, y = case.data(3 * rows)
    model.fit(x, y, batch_size=rows, shuffle=False, verbose=0, callbacks=[Peak()])
    measured = status_bytes("VmHWM") - idle + sum(4 * math.prod(one.shape) for one in pipelined(model).variables)
    cuts = [len(chunk.layers) for chunk in pipelined(model).chunks.chunks]
    profile = profile_of(model, case.rows, current_world().group)
    pipeline = Pipeline(
        profile,
        stages,
        int(number),
        recompute="recompute" in given,
        cuts=lambda _: tuple(np.cumsum(cuts).tolist()),
    )
    peaks = predict(pipeline, schedule_named(schedule)).peaks
    pipeline_steps.written([measured, peaks[paceline.rank()].total_bytes])


if __name__ == "__main__":
    main()
