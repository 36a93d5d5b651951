"""`paceline.data.service`: a dataset whose batches are made by other processes, `paceline run --data-workers K`.

| K | which batches | a rank gets |
|---|---|---|
| 1 | those of one worker, in its order: `served_batches.py` | its rows of each |
| more | whichever are ready: `dealt_batches.py` | some of them, whole, of which it trains on a part a step |
"""

import logging
import os
import time
from typing import Any

from paceline.cluster import environment, job_options
from paceline.cluster.address_text import is_loopback
from paceline.cluster.evaluator_task import is_evaluator
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.comm.world import current_world
from paceline.data.faults import note_files_of
from paceline.data.foreign_memory import calls_python
from paceline.data.indexed.readings import number_of_new_source
from paceline.data.own_rows.replicated import names_of, replicated_components
from paceline.data.workers.data_worker import answers, dispatch_at
from paceline.data.workers.dealt_batches import dealt_batches
from paceline.data.workers.served_batches import ServedBatches
from paceline.errors import ConfigurationError, StartError

_LOGGER = logging.getLogger("paceline")

_POLL_SECONDS = 0.2
_START_TIMEOUT_SECONDS = 60.0


def service(dataset: Any) -> Any:
    """Has the batches of a dataset made by the data workers of the job, in place of the ranks.

        train = paceline.data.service(dataset)     # paceline run --workers 2 --data-workers 1 train.py
        model.fit(train, epochs=10)

    With one data worker the batches are those that one worker would train on, and each rank receives its rows. With
    several, each batch of an epoch is made once, by whichever data worker is free, and goes to whichever rank asks: no
    run gets the same batches again. All ranks call it alike.

    Args:
        dataset: A `tf.data.Dataset` of global batches, which reads and computes with TensorFlow's operations only:
            data workers do not run the script. They read files by the same paths.

    Returns:
        A `tf.data.Dataset`. `dataset` itself in a process that `paceline run` has not started, and in an evaluator.

    Raises:
        ConfigurationError: the job has no data workers, the dataset calls Python, or its components were batched with
            different sizes.
        StartError: the chief has not called this within ``--start-timeout``.
    """
    world = current_world()
    if not world.launched or is_evaluator(os.environ):
        return dataset
    address = os.environ.get(environment.DATA_SERVICE, "")
    num_workers = read_variables(JobOptions, os.environ, "data_workers").data_workers
    if not address or num_workers is None:
        raise ConfigurationError(
            "paceline.data.service: this job has no data workers. Start it with `paceline run --data-workers 1`, or "
            "leave the call out. [data-service]"
        )
    _refuse_python(dataset)
    _refuse_two_sizes(dataset)
    note_files_of(dataset)
    if world.is_chief:
        dispatch_at(address)
        _LOGGER.info("%s", _said_of(num_workers))
    _await(address)
    number = number_of_new_source()
    target = f"grpc://{address}"
    compression = None if is_loopback(address.rpartition(":")[0].strip("[]")) else "AUTO"
    if num_workers == 1:
        return ServedBatches(number=number, given=dataset, target=target, compression=compression).dataset()
    return dealt_batches(dataset, number, target, compression)


def _said_of(num_workers: int) -> str:
    if num_workers == 1:
        return (
            "paceline.data.service: a data worker makes the batches that one worker would make. After a restart it "
            "makes those of the epoch again up to the position, and goes on exactly"
        )
    return (
        f"paceline.data.service: {num_workers} data workers make each batch of an epoch once, and whoever asks first "
        "gets it: other batches than those of one worker. After a restart the epoch goes on behind as many batches as "
        "were read, which may be others: some of its rows come twice, and some not at all"
    )


def _refuse_python(dataset: Any) -> None:
    if calls_python(dataset):
        raise ConfigurationError(
            "paceline.data.service: the dataset calls Python (tf.py_function, tf.numpy_function, from_generator, "
            "paceline.data.records and rows), which is in this process only. Use TensorFlow's operations, or leave "
            "the call of paceline.data.service out: each rank then reads by itself. [data-service]"
        )


def _refuse_two_sizes(dataset: Any) -> None:
    """A data worker cuts each component by its own rows."""
    if replicated := replicated_components(dataset):
        raise ConfigurationError(
            f"paceline.data.service: {names_of(dataset, replicated)} were batched with another size than the others. "
            "Leave the call of paceline.data.service out: each rank then reads by itself. [rows-differ]"
        )


def _await(address: str) -> None:
    given = read_variables(JobOptions, os.environ, "start_timeout_seconds").start_timeout_seconds
    timeout_seconds = _START_TIMEOUT_SECONDS if given is None else given
    deadline = time.monotonic() + timeout_seconds
    while not answers(address):
        if time.monotonic() >= deadline:
            raise StartError(
                f"paceline.data.service: waited {timeout_seconds:g} s for the chief at {address}. All ranks must call "
                f"it, the chief, too; --start-timeout ({job_options.START_TIMEOUT}) sets how long to wait. "
                "[start-timeout]"
            )
        time.sleep(_POLL_SECONDS)
