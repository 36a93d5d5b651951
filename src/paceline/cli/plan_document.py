"""What `paceline plan --json` prints; docs/pipeline_plans.md describes each key."""

import math
from dataclasses import asdict
from typing import Any

from paceline.plan.comparison import Comparison, Pipeline, Prediction


def document(pipeline: Pipeline, comparison: Comparison) -> dict[str, Any]:
    """Everything about a plan, in types of JSON. Times are in seconds, of one micro-batch where not of a step."""
    limit, best = pipeline.memory_limit_bytes, comparison.fastest_synchronous
    layers = pipeline.profile.layers
    return {
        "stages": pipeline.stages,
        "micro_batches": pipeline.micro_batches,
        "replicas": pipeline.replicas,
        "memory_limit_bytes": None if limit == math.inf else limit,
        "recompute": pipeline.recompute,
        "layers": [{**asdict(layer), "reads": [layers[at].name for at in layer.reads]} for layer in layers],
        "ties": [[layers[at].name for at in tie] for tie in pipeline.profile.ties],
        "call_seconds": pipeline.profile.call_seconds,
        "shared_weights": [
            {**asdict(shared), "layers": [layers[at].name for at in shared.layers]}
            for shared in pipeline.profile.shared_weights
        ],
        "schedules": [_of_schedule(pipeline, one) for one in comparison.predictions],
        "refusals": comparison.refusals,
        "best": best.schedule.name if best else None,
    }


def _of_schedule(pipeline: Pipeline, one: Prediction) -> dict[str, Any]:
    layers = pipeline.profile.layers
    return {
        "name": one.schedule.name,
        "is_synchronous": one.schedule.is_synchronous,
        "step_seconds": one.step_seconds,
        "bubble": one.timeline.bubble,
        "balance": [len(chunk) for chunk in one.split.chunks],
        "split_after": [layers[cut - 1].name for cut in one.split.cuts[:-1]],
        "stages": [
            {
                "layers": [
                    layers[at].name
                    for chunk in one.timeline.outline.shape.chunks_of(stage)
                    for at in one.split.chunks[chunk]
                ],
                "busy_seconds": one.timeline.busy_seconds[stage],
                "memory_bytes": peak.total_bytes,
                "stash_bytes": peak.stash_bytes,
                "weight_versions": peak.num_versions,
            }
            for stage, peak in enumerate(one.peaks)
        ],
    }
