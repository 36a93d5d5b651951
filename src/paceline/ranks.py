"""`paceline.rank()` and its like: where this process stands in its job, and learning rates for so many ranks.

None of them waits for anybody.
"""

import math
import os
from typing import Literal

from paceline.cluster.evaluator_task import is_evaluator
from paceline.comm.world import current_world


def rank() -> int:
    """This process's rank, 0 to `world_size()` - 1; 0 in a process without other workers.

        print(f"rank {paceline.rank()} of {paceline.world_size()}")
        noise = np.random.default_rng([1, paceline.rank()])     # other numbers on each rank

    Any rank may call it alone.
    """
    return current_world().rank


def world_size() -> int:
    """How many ranks the job has; 1 in a process without other workers.

        model.fit(x, y, batch_size=32 * paceline.world_size())  # 32 rows for each worker

    Any rank may call it alone.
    """
    return current_world().size


def local_rank() -> int:
    """This process's number on its host, from 0.

        scratch = f"scratch-{paceline.local_rank()}"            # one for each worker of this host
        os.makedirs(scratch, exist_ok=True)

    Any rank may call it alone.
    """
    return current_world().identity.local_rank


def is_chief() -> bool:
    """Whether this process is the chief (rank 0), the one that should write files; an evaluator is not.

        history = model.fit(dataset, epochs=3)                  # on all ranks, with the same numbers
        if paceline.is_chief():
            np.savetxt("losses.txt", history.history["loss"])

    Any rank may call it alone.
    """
    return current_world().is_chief and not is_evaluator(os.environ)


Rule = Literal["linear", "sqrt"]


def scale_learning_rate(base: float, rule: Rule = "linear", replicas: int | None = None) -> float:
    """The learning rate for a global batch that is `replicas` times as large as the batch for which `base` was tuned.

        model.compile(keras.optimizers.SGD(paceline.scale_learning_rate(0.1)), "mse")   # 0.4 with four workers

    >>> scale_learning_rate(0.1, replicas=4), scale_learning_rate(0.001, rule="sqrt", replicas=4)
    (0.4, 0.002)

    Args:
        base: The learning rate for the batch of one worker.
        rule: ``"linear"`` (SGD: Goyal et al., 2017, https://arxiv.org/abs/1706.02677) or ``"sqrt"`` (often used with
            Adam and its kin: Krizhevsky, 2014, https://arxiv.org/abs/1404.5997).
        replicas: How many times larger the batch is; the workers of this job when None.

    Raises:
        ValueError: an unknown rule, or fewer than one replica.
    """
    factor = world_size() if replicas is None else replicas
    if factor < 1:
        raise ValueError(f"replicas={factor}: expected at least 1 [argument]")
    if rule == "linear":
        return base * factor
    if rule == "sqrt":
        return base * math.sqrt(factor)
    raise ValueError(f"rule={rule!r}: expected 'linear' or 'sqrt' [argument]")
