"""What a pipeline cannot do, said before anything starts: one sentence for each fault."""

import operator

from paceline.errors import ConfigurationError
from paceline.plan.schedules import Schedule


def integer(name: str, value: object) -> int:
    """`value`, which a user gave as `name`; NumPy's integers count.

    Raises:
        ConfigurationError: it is no integer.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]  # refused below
    except TypeError:
        raise ConfigurationError(f"Received {value!r} for {name}; expected an integer. [pipeline]") from None


def refuse(
    schedule: Schedule | None,
    stages: int,
    micro_batches: int,
    *,
    num_layers: int | None = None,
    batch_rows: int | None = None,
    world_size: int,
) -> None:
    """Refuses numbers that do not go together.

    Args:
        schedule: Which one; None: not known.
        stages: Places in the pipeline.
        micro_batches: Of one batch.
        num_layers: Of the model; None: not known.
        batch_rows: Of the global batch; None: not known.
        world_size: All workers: stages x replicas.

    Raises:
        ConfigurationError: with every fault.
    """
    if faults := faults_of(schedule, stages, micro_batches, num_layers, batch_rows, world_size):
        raise ConfigurationError(f"{' '.join(faults)} [pipeline]")


def faults_of(
    schedule: Schedule | None,
    stages: int,
    micro_batches: int,
    num_layers: int | None,
    batch_rows: int | None,
    world_size: int,
) -> list[str]:
    """See `refuse`; one sentence for each fault."""
    if stages < 1 or micro_batches < 1:
        return [f"Received stages={stages} and micro_batches={micro_batches}; both are at least 1."]
    faults = []
    if schedule and num_layers is not None and (num_chunks := len(schedule.places(stages))) > num_layers:
        faults.append(
            f"{num_chunks} chunks ({stages} stages, schedule {schedule.name!r}) are more than the model's {num_layers} "
            "layers: ask for fewer stages."
        )
    replicas = max(1, world_size // stages)
    if batch_rows is not None and micro_batches * replicas > batch_rows:
        of_each = f" for each of {replicas} replicas" if replicas > 1 else ""
        fewer = f"ask for at most {most}, or " if (most := batch_rows // replicas) else ""
        faults.append(
            f"A batch of {batch_rows} rows cannot be cut into {micro_batches} micro-batches{of_each}: {fewer}enlarge "
            f"the batch to {micro_batches * replicas} rows."
        )
    if schedule and micro_batches < (fewest := schedule.fewest_micro_batches(stages)):
        faults.append(
            f"The schedule {schedule.name!r} with {stages} stages needs at least {fewest} micro-batches, not "
            f"{micro_batches}."
        )
    if world_size % stages:
        fits = max(stages, world_size - world_size % stages)
        faults.append(
            f"{world_size} workers cannot be divided into {stages} stages of as many replicas each: start {fits} or "
            f"{fits + stages} workers."
        )
    return faults
