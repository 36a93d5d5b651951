"""Whether servers in threads of this process have threads enough for their steps.

All TensorFlow servers of a process share one pool of inter-op threads, whose size the first server fixes. A worker
keeps one of them as long as it makes a step, and what the step asks of a parameter server needs another. With as many
threads as workers, all of them wait for ever. TensorFlow says nothing.
"""

import os
from pathlib import Path

import tensorflow as tf

from paceline.errors import ConfigurationError

_POOLS = "tf_Compute"
"""How TensorFlow names the threads of these pools, and of the one in which this process runs its own operations."""


def refuse_too_few_threads(num_workers: int) -> None:
    """Refuses a cluster whose workers are in this process, before TensorFlow connects to it, if a step would hang.

    Asks the kernel for the threads of this process by name. Where there is no `/proc`, or TensorFlow gives its threads
    no names (2.17), nothing is refused.

    Raises:
        ConfigurationError: `num_workers` in this process need more threads than its servers have.
    """
    num_threads, num_needed = _num_server_threads(), num_workers + 1
    if not 0 < num_threads < num_needed:
        return
    raise ConfigurationError(
        f"the servers in this process share {num_threads} inter-op thread{'s' * (num_threads > 1)}, but steps on "
        f"{num_workers} worker{'s' * (num_workers > 1)} need {num_needed}, or wait for each other for ever. Make every "
        f"tf.distribute.Server with config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads={num_needed}). "
        "[server-threads]"
    )


def _num_server_threads() -> int:
    """Those that the servers of this process share; 0 or less: there are no servers here, or nobody can tell.

    Too many where the process has had a cluster before: TensorFlow then has further pools of this name.
    """
    tf.config.list_logical_devices()  # from here on, this process has the pool for its own operations
    own = tf.config.threading.get_inter_op_parallelism_threads() or int(os.environ.get("TF_NUM_INTEROP_THREADS") or 0)
    return _count(_POOLS) - (own or num_cores())


def _count(name: str) -> int:
    count = 0
    for path in Path("/proc/self/task").glob("*/comm"):
        try:
            count += path.read_text().strip() == name
        except OSError:  # the thread has ended
            continue
    return count


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
