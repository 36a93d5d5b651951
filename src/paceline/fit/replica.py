"""Whether the code that is traced belongs to a step of a Paceline strategy, and what is known about this step.

A training loop without communication, in which each rank would train its own model, is refused, or reported.
"""

from typing import Any

import keras
import tensorflow as tf

from paceline.cluster.server_cluster import refuse_beside_servers
from paceline.comm.world import current_world
from paceline.fit import own_functions, own_loops
from paceline.fit.run import Run
from paceline.fit.unbatched import is_of_keras
from paceline.strategy.as_one_worker import is_as_one_worker
from paceline.strategy.base import named_strategies
from paceline.strategy.replica_context import PacelineReplicaContext


def current_replica() -> PacelineReplicaContext | None:
    """The Paceline replica context of more than one replica that this code runs in; None outside."""
    context: Any = tf.distribute.get_replica_context()
    if isinstance(context, PacelineReplicaContext) and context.num_replicas_in_sync > 1:
        return context
    return None


def current_batch_replica() -> PacelineReplicaContext | None:
    """As `current_replica`, but only in steps that have a batch, whose rows can be counted."""
    context = current_replica()
    return context if context is not None and context.rows.known else None


def refuse_lonely_step() -> None:
    """An optimizer step outside `strategy.run`, in a world of several that nobody has asked to train apart.

    Raises:
        RuntimeError: the script names a strategy, or there is to be none, so that each rank would train by itself;
            or a model makes its train function itself.
    """
    world = current_world()
    if is_as_one_worker():
        return
    if not tf.distribute.has_strategy():
        refuse_without_servers()
    if world.data.size == 1 or not world.launched or world.solo_training_allowed or own_loops.run_alike():
        return
    run = Run.current()
    if run is not None and not is_of_keras(run.model, "make_train_function"):
        raise RuntimeError(
            f"{type(run.model).__name__}.make_train_function makes steps of its own, on one of {world.data.size} "
            "workers: each worker would train its own model. Paceline divides train_step, which Keras's own "
            "make_train_function calls. Override train_step, and leave make_train_function out. [no-strategy]"
        )
    raise RuntimeError(
        f"this optimizer step is outside strategy.run, on one of {world.data.size} workers: each worker would train "
        "its own model, and the workers would never synchronize. Train with model.fit, which needs no change, "
        "or write the loop for all workers:\n"
        "    strategy = paceline.MultiWorkerMirroredStrategy()\n"
        "    with strategy.scope():  # create the model and the optimizer here\n"
        "        model, optimizer = make()\n"
        "    for batch in strategy.experimental_distribute_dataset(dataset):  # of global batches\n"
        "        loss = strategy.run(step, args=(batch,))  # on the rows of this worker\n"
        "        loss = strategy.reduce('SUM', loss, axis=None)  # over all workers\n"
        "A Keras loss on a worker is that worker's share of the loss of the global batch, so strategy.reduce adds the "
        "shares up. A mean that you compute yourself is not: use tf.nn.compute_average_loss(losses, "
        "global_batch_size=...) instead. If the workers are meant to train separate models: paceline run "
        "--allow-independent. [no-strategy]"
    )


def refuse_without_servers() -> None:
    """Training in the chief of a launched job with parameter servers whose script has made no strategy.

    Raises:
        ConfigurationError: this process is such a chief.
    """
    world = current_world()
    if world.launched and not named_strategies and not world.solo_training_allowed:
        refuse_beside_servers(world.place, "model or loop without a strategy")


def note_gradients(sources: Any, gradients: Any) -> None:
    """Gradients of `sources` have been taken: if of variables, and in no step of all ranks, a loop of a user's trains.

    Collective where all ranks run it alike.
    """
    world = current_world()
    if world.data.size == 1 or world.solo_training_allowed or current_replica() is not None or is_as_one_worker():
        return
    if any(isinstance(source, (keras.Variable, tf.Variable)) for source in tf.nest.flatten(sources)):
        if not own_loops.run_alike():
            world.has_lonely_gradients = True
        elif tf.executing_eagerly():
            own_loops.taken_eagerly(gradients)
        else:
            own_functions.note_gradients()
