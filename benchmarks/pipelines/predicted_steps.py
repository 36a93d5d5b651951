"""``predicted_steps.py STAGES CASE:SCHEDULE:MICRO_BATCHES...``: as `pipeline_steps.py`, for the best split of each.

Writes besides, for each variant, what is expected: seconds of a step, and of the operations and updates of each stage.
"""

import sys

import keras
import pipeline_steps
from models import CASES

import paceline
from paceline.comm.world import current_world
from paceline.pipeline.link_cost import link_of
from paceline.pipeline.model_profile import profile_of
from paceline.plan.comparison import Pipeline, Prediction, predict
from paceline.plan.schedules import schedule_named


def predicted(variant: str, stages: int) -> Prediction:
    """What is expected of a variant, from measured layers."""
    name, schedule, number = variant.split(":")
    keras.utils.set_random_seed(0)
    with paceline.PipelineStrategy(stages, int(number), schedule).scope():
        model = CASES[name].build()
        model.compile(keras.optimizers.SGD(0.001), CASES[name].loss)
    group = current_world().group
    pipeline = Pipeline(profile_of(model, CASES[name].rows, group), stages, int(number), link=link_of(group))
    return predict(pipeline, schedule_named(schedule))


def main() -> None:
    stages, variants = int(sys.argv[1]), sys.argv[2:]
    told, measured = {}, {}
    for variant in variants:
        one = predicted(variant, stages)
        updates = [
            sum(end - begin for (turn, _), begin, end in spans if turn is None) for spans in one.timeline.spans()
        ]
        model = pipeline_steps.model_of(variant, stages, balance=[len(chunk) for chunk in one.split.chunks])
        told[variant] = [one.step_seconds, one.timeline.busy_seconds, updates]
        steps = CASES[variant.partition(":")[0]].steps
        measured[variant] = [pipeline_steps.measured(variant, model, steps) for _ in range(pipeline_steps.ROUNDS)]
    pipeline_steps.written({"expected": told, "measured": measured})


if __name__ == "__main__":
    main()
