"""Checks before the first step: can the job run, do all ranks run the same job, and one line on how it will run.

All of it costs two small messages for each `fit` and `evaluate`.
"""

import hashlib
import json
import logging
import weakref
from itertools import zip_longest
from typing import Any

import keras
import numpy as np

from paceline.cluster.row_shares import shares_in, text_in
from paceline.comm.group import Group
from paceline.comm.script_lines import lines_of_ranks
from paceline.data.batch_rows import DataDescription, local_slice
from paceline.errors import DesynchronizedError
from paceline.fit.run import Run

_LOGGER = logging.getLogger("paceline")

_DIGEST_BYTES = 16

_said: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()
"""By model, the chief's lines: a script that calls `fit` for every epoch wants none of them twice."""


def begin_together(model: Any, data: DataDescription, num_batches: int | None, strategy: Any, training: bool) -> None:
    """Checks the job and compares it over ranks; the chief says how a `fit` will be run, once for each model and data.

    Collective.

    Args:
        model: Built, if its data's shapes tell how.
        data: What the epoch iterator knows of its data.
        num_batches: Steps of an epoch; None if that is not known yet.
        strategy: The model's.
        training: Whether this is a `fit`'s training data.

    Raises:
        ValueError: in a `fit`: more steps than the data has batches.
        DesynchronizedError: ranks have different models, data or step counts; the message has both values.
    """
    if training:
        _check_steps(data)
    compare_over_ranks(facts_of(model, data, num_batches), strategy.group)
    if training and strategy.world.is_chief:
        line = start_line(data, num_batches, strategy.group.size)
        said = _said.setdefault(model, set())
        if line in said:
            return
        said.add(line)
        _LOGGER.info("%s", line)
        _warn_of_idle_ranks(data, strategy.group.size)


def _warn_of_idle_ranks(data: DataDescription, size: int) -> None:
    """A rank never gets a row of a full batch: there are fewer rows than ranks, or ``--shares`` gives it none."""
    if data.is_local or data.batch_size is None:
        return
    if data.batch_size < size:
        _LOGGER.warning(
            "a batch of %d rows is too small for %d workers, so some get no row of it and only wait: the numbers are "
            "one worker's, but %d workers would have them as soon (paceline run --workers %d). Or make the batch size "
            "larger: it is that of all workers together [small-batch]",
            data.batch_size,
            size,
            data.batch_size,
            data.batch_size,
        )
        return
    shares = shares_in()
    if len(shares) != size:
        return
    slices = [local_slice(data.batch_size, rank, size) for rank in range(size)]
    idle = [str(rank) for rank, (begin, end) in enumerate(slices) if begin == end and shares[rank]]
    if idle:
        _LOGGER.warning(
            "with --shares %s, rank %s gets no row of a batch of %d rows: larger batches or other shares help [shares]",
            ",".join(map(str, shares)),
            " and rank ".join(idle),
            data.batch_size,
        )


def _check_steps(data: DataDescription) -> None:
    wanted, there = data.steps_per_epoch, data.num_batches
    if wanted is None or there is None or wanted <= there:
        return
    # KERAS_MAX_STEPS_PER_EPOCH: Keras takes it for `steps_per_epoch`, also where the data are shorter.
    if wanted == getattr(keras.config, "max_steps_per_epoch", lambda: None)():
        return
    raise ValueError(
        f"steps_per_epoch={wanted}, but the data has only {there} batches. Use steps_per_epoch={there}, or omit "
        "it: an epoch is then all of the data, without .repeat(). For epochs longer than the data, add "
        ".repeat() to the dataset. [steps-per-epoch]"
    )


_ALL = "every rank reads all data and computes its rows of each batch"
_OWN = "each rank reads its own batches, as the script distributes them"


def start_line(data: DataDescription, num_batches: int | None, size: int) -> str:
    """What will happen, in one line; pure."""
    steps = (
        "steps per epoch unknown until the first epoch has ended"
        if num_batches is None
        else f"{num_batches} steps an epoch"
    )
    if data.is_local:
        return f"{size} replicas; {steps}; {data.work or _OWN}"
    if data.batch_size is None:
        batch = "batch size unknown"
    else:
        slices = [local_slice(data.batch_size, rank, size) for rank in range(size)]
        rows = [end - begin for begin, end in slices]
        low, high = min(rows), max(rows)
        batch = f"global batch {data.batch_size}, {low if low == high else f'{low} to {high}'} rows per replica"
    return f"{size} replicas; {batch}; {steps}; {data.work or _ALL}"


def facts_of(model: Any, data: DataDescription, num_batches: int | None) -> dict[str, Any]:
    """What must be the same on all ranks, as JSON can hold it."""
    variables = list(model.trainable_variables) + list(model.non_trainable_variables) if model.built else []
    optimizer = getattr(model, "optimizer", None)
    return {
        "number of batches in an epoch": num_batches,
        "batch size": None if data.is_local else data.batch_size,
        "data": data.components,
        _SOURCE: [*data.facts],
        "shares of rows": text_in(),
        "number of variables in the model": len(variables),
        "variables of the model": [[list(variable.shape), str(variable.dtype)] for variable in variables],
        "names of the variables": [variable.path for variable in variables],
        "optimizer": type(optimizer).__name__,
        "steps_per_execution": getattr(model, "steps_per_execution", None),
        "epochs": None if (fit := Run.of_fit(model)) is None else [*fit.epochs],
    }


_SOURCE = "source of the data"
_MAY_DIFFER = "names of the variables"
"""A rank that has made another model before numbers its layers differently."""


def compare_over_ranks(facts: dict[str, Any], group: Group) -> None:
    """Stops the job if ranks differ in what must be the same. Collective.

    Raises:
        DesynchronizedError: names each fact in which a rank differs from rank 0, with both values.
    """
    compared = {name: fact for name, fact in facts.items() if name != _MAY_DIFFER}
    digest = hashlib.blake2b(json.dumps(compared, default=int).encode(), digest_size=_DIGEST_BYTES).digest()
    digests = group.all_gather(np.frombuffer(digest, np.uint8))
    if all(theirs.tobytes() == digest for theirs in digests):
        return
    texts = group.all_gather(np.frombuffer(json.dumps(facts, default=int).encode(), np.uint8))
    chiefs, *others = (json.loads(text.tobytes()) for text in texts)
    faults = [fault for rank, theirs in enumerate(others, 1) for fault in differences(chiefs, theirs, rank)]
    raise DesynchronizedError(
        "the ranks do not run the same job, so the job was stopped before the first step:\n  "
        + "\n  ".join(faults)
        + "\n"
        "All ranks must run the same script on the same data: look for code that depends on the rank, the host, its "
        f"files or its environment. {lines_of_ranks(group)} [ranks-differ]"
    )


def differences(chiefs: dict[str, Any], theirs: dict[str, Any], rank: int) -> list[str]:
    """One line for each fact in which `theirs`, of `rank`, is not the chief's; pure."""
    found = []
    for name, chief_fact in chiefs.items():
        fact = theirs.get(name)
        if fact == chief_fact or name == _MAY_DIFFER:
            continue
        if name == "variables of the model":
            names = zip(chiefs[_MAY_DIFFER], chief_fact, fact or [], strict=False)
            found += [
                f"variable {path}: {_variable_text(one)} on rank 0, {_variable_text(other)} on rank {rank}"
                for path, one, other in names
                if one != other
            ][:1]
        elif name == _SOURCE:
            pairs = zip_longest(chief_fact, fact or [], fillvalue="nothing")
            found += [f"{name}: {one} on rank 0, {other} on rank {rank}" for one, other in pairs if one != other][:1]
        else:
            found.append(f"{name}: {chief_fact} on rank 0, {fact} on rank {rank}")
    return found


def _variable_text(shape_and_dtype: Any) -> str:
    shape, dtype = shape_and_dtype
    return f"{tuple(shape)} {dtype}"
