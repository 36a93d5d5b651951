"""Data that is divided by `tf.data`'s own rules on request (`AutoShardPolicy`), not by the rows of common batches.

| policy | each rank reads | same batches as one worker |
|---|---|---|
| AUTO, DATA | everything; it computes its rows of each batch | yes |
| FILE | every n-th file | no |
| HINT | what `.shard(SHARD_HINT, SHARD_HINT)` of the script leaves it | no |
| OFF | everything: the script has divided the data | no |
"""

from typing import Any, Literal

import tensorflow as tf

from paceline.data import compat
from paceline.data.indexed.index_source import source_of
from paceline.data.own_rows.division import division_in
from paceline.errors import ConfigurationError

_POLICIES = tf.data.experimental.AutoShardPolicy
_NAME = tf.TensorSpec([], tf.string)


def shard(dataset: Any, policy: Literal["auto", "data", "file", "hint", "off"]) -> Any:
    """Says how `fit`, `evaluate` and `strategy.experimental_distribute_dataset` divide a dataset among the workers.

        dataset = paceline.data.shard(dataset, "file")     # of several files
        model.fit(dataset, epochs=3)

    With ``"file"`` no worker reads what another one reads. Its batches hold other rows than those of one worker, and
    an epoch lasts as long as the worker with the most rows needs; the others get empty batches at the end.

    Args:
        dataset: A `tf.data.Dataset` of global batches. Without this, or with ``"auto"`` or ``"data"``, workers compute
            their rows of common batches.
        policy: A name of `tf.data.experimental.AutoShardPolicy`, in lower case: this sets the dataset's option
            `experimental_distribute.auto_shard_policy`.

    Returns:
        The dataset with the option.

    Raises:
        ConfigurationError: there is no such policy.
    """
    names = [one.name.lower() for one in _POLICIES]
    if policy not in names:
        raise ConfigurationError(f"Received the policy {policy!r}; expected one of {', '.join(names)}. [argument]")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = _POLICIES[policy.upper()]
    return dataset.with_options(options)


def is_sharded_by_hand(dataset: Any) -> bool:
    """Whether each rank reads rows of its own, by the script or by a rule of TensorFlow's."""
    return bool(_policy_of(dataset) in (_POLICIES.OFF, _POLICIES.FILE, _POLICIES.HINT))


def how_divided(dataset: Any) -> str:
    """What each rank reads of a dataset of which `is_sharded_by_hand`, for a line of a log."""
    if (division := division_in(dataset)) is not None:  # the script does not divide it
        return division.work
    words = {
        _POLICIES.OFF: "each rank reads its own batches, as the script distributes them",
        _POLICIES.FILE: "whole files are dealt to the ranks, so batches hold other rows than those of one worker",
        _POLICIES.HINT: "each rank reads its shard (SHARD_HINT), so batches hold other rows than those of one worker",
    }
    return words[_policy_of(dataset)]


def sharded(dataset: Any, rank: int, size: int) -> Any:
    """What this rank reads of a dataset: all, or under the policies FILE and HINT its part.

    Raises:
        ConfigurationError: there is nothing that could be divided so.
    """
    policy = _policy_of(dataset)
    if policy not in (_POLICIES.FILE, _POLICIES.HINT) or (policy == _POLICIES.FILE and size == 1):
        return dataset
    if any(map(source_of, compat.with_sources(dataset))):
        raise ConfigurationError(
            f"The dataset's auto_shard_policy is {policy.name}, but it is of paceline.data.records or rows: each "
            "worker reads its own rows already. Leave the policy out. [auto-shard]"
        )
    if policy == _POLICIES.FILE and (num_files := _num_files(dataset)) is not None and num_files < size:
        raise ConfigurationError(
            f"Whole files are dealt to the workers (auto_shard_policy FILE), but {num_files} files are too few for "
            f"{size} workers. Start fewer workers, write more files, or leave the policy out; of records, write the "
            "files without compression. [auto-shard]"
        )
    if policy == _POLICIES.HINT and not any(map(compat.is_shard_hint, compat.with_sources(dataset))):
        raise ConfigurationError(
            "The dataset's auto_shard_policy is HINT, but it has no place for the shards, so every worker would train "
            "on all rows. Add .shard(tf.data.experimental.SHARD_HINT, tf.data.experimental.SHARD_HINT) where it is to "
            "be divided, or leave the policy out. [auto-shard]"
        )
    try:
        return compat.auto_sharded(dataset, rank, size)
    except tf.errors.NotFoundError as fault:
        raise ConfigurationError(
            "The dataset's auto_shard_policy is FILE, but TensorFlow finds no files in it that could be dealt to the "
            "workers. Leave the policy out: each worker then computes its rows of common batches. [auto-shard]"
        ) from fault


def _num_files(dataset: Any) -> int | None:
    """How many names a dataset begins with; None: it does not begin with text."""
    first = [one for one in compat.with_sources(dataset) if not compat.inputs_of(one)]
    names = [one for one in first if compat.kind_of(one) == "TensorSlice" and one.element_spec == _NAME]
    return int(names[0].cardinality()) if len(first) == len(names) == 1 else None


def _policy_of(dataset: Any) -> Any:
    return dataset.options().experimental_distribute.auto_shard_policy
