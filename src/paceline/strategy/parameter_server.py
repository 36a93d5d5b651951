"""`ParameterServerStrategy`: variables lie on servers, and workers update them without waiting for each other."""

import inspect
import os
from typing import Any, NoReturn

import tensorflow as tf

from paceline.cluster.evaluator_task import is_evaluator
from paceline.cluster.row_shares import refuse_shares
from paceline.cluster.server_cluster import checked_server_cluster
from paceline.cluster.spec import CHIEF, WORKER, ClusterSpec
from paceline.cluster.tf_config import read_tf_config
from paceline.comm.departure import own_departure
from paceline.comm.world import current_world
from paceline.errors import ConfigurationError
from paceline.strategy import compat
from paceline.strategy.base import SynchronousStrategy, local_device, named_strategies
from paceline.strategy.chief_of_servers import attend, await_followers
from paceline.strategy.first_use import SERVERS
from paceline.strategy.multi_worker_mirrored import place_of
from paceline.strategy.partitioning import SwitchedPartitioner
from paceline.strategy.recovery import recover_workers
from paceline.strategy.scheduled_functions import refuse_python, tell_each_fault_once
from paceline.strategy.server_threads import refuse_too_few_threads
from paceline.strategy.serving import serve

_FAIL_FAST = "GRPC_FAIL_FAST"


class EvaluatingStrategy(SynchronousStrategy):
    """What a `ParameterServerStrategy` or a `PipelineStrategy` is in an evaluator: a world of one, whose model has the
    snapshots' weights.
    """

    def __init__(self) -> None:
        super().__init__(current_world(), local_device(current_world()))


def _refuse_coordinator(strategy: Any) -> NoReturn:
    del strategy
    raise ConfigurationError(
        "an evaluator (--evaluator) follows the snapshots that `fit` takes, but this script makes a ClusterCoordinator "
        "for a loop of its own. Start the job without --evaluator, and evaluate its checkpoints by "
        "paceline.SidecarEvaluator in a script of its own (docs/evaluator.md). [evaluator]"
    )


setattr(EvaluatingStrategy, compat.COORDINATOR_OF_STRATEGY, property(_refuse_coordinator))


class ParameterServerStrategy(compat.ParameterServerStrategyV2):  # type: ignore[misc]  # TensorFlow is untyped
    """Trains one model asynchronously; drop-in for `tf.distribute.ParameterServerStrategy`.

        strategy = paceline.ParameterServerStrategy()
        with strategy.scope():
            model = build_and_compile()
        model.fit(dataset, epochs=3)                   # paceline run --workers 2 --ps 1 train.py

    The parameter servers hold the variables, in turn. Each worker reads them, computes one step and adds its update.
    The process that makes this strategy is the chief: it runs the script and dispatches the steps.

    Under `paceline run` the cluster is the job's. By hand it is TF_CONFIG's: in a process whose task is `worker` or
    `ps`, the constructor serves and never returns.

    In an evaluator, which needs no servers, it gives a strategy of this one process.

    Args:
        cluster_resolver: A `tf.distribute.cluster_resolver.ClusterResolver` to use in place of both. Its task type is
            `chief` or nothing, its cluster has a `worker` and a `ps` each.
        variable_partitioner: A `tf.distribute.experimental.partitioners.Partitioner`: variables that it divides are
            shared out over the servers by rows. None: every variable lies on one server.
        max_staleness: How many updates by others may at most lie between a step's reading of the variables and its
            own update. None: any number.
        lazy_rows: Whether every optimizer updates only the rows of a table that a step has looked up. None but these
            rows is ever read or written then. SGD and Adagrad do so anyway. Others, such as Adam, would also change
            the rows that no step has looked up, and `lazy_rows` changes their result.

    Raises:
        ConfigurationError: TF_CONFIG is wrong, or names no cluster with workers and parameter servers; or servers in
            threads of this process have too few inter-op threads for a step.
        ValueError: `max_staleness` is no number from 0 on.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        del args, kwargs
        return EvaluatingStrategy() if is_evaluator(os.environ) else super().__new__(cls)

    def __init__(
        self,
        cluster_resolver: Any = None,
        variable_partitioner: Any = None,
        max_staleness: int | None = None,
        lazy_rows: bool = False,
    ) -> None:
        if max_staleness is not None and (type(max_staleness) is not int or max_staleness < 0):
            raise ValueError(f"max_staleness is {max_staleness!r}; expected None or an integer from 0 on")
        refuse_shares(type(self).__name__)
        SERVERS.begin()
        resolver, cluster = _told_cluster(cluster_resolver)
        # A call to a process that has died fails at once, and does not wait until somebody listens there again.
        os.environ.setdefault(_FAIL_FAST, "use_caller")
        self._partitioner = None if variable_partitioner is None else SwitchedPartitioner(variable_partitioner)
        super().__init__(resolver, self._partitioner)
        if cluster is not None:
            await_followers(cluster)
        if self.num_replicas_in_sync == 1:
            self._extended = _OneReplicaExtended(self, resolver, self._partitioner)
        self._max_staleness = max_staleness
        self._lazy_rows = bool(lazy_rows)
        tell_each_fault_once()
        recover_workers(self)
        if cluster is not None:
            refuse_python(tf.distribute.coordinator.ClusterCoordinator(self))
        named_strategies.append(type(self).__name__)

    # `inspect.signature`, and with it help and notebooks, asks `__new__` first.
    __new__.__signature__ = inspect.signature(__init__)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ParameterServerStrategy":
        # A connection to a cluster cannot be doubled: what is copied along with its strategy stays under this one.
        memo[id(self)] = self
        return self

    @property
    def partitioner(self) -> SwitchedPartitioner | None:
        """Says into how many shards a variable is divided; None: no variable is."""
        return self._partitioner

    @property
    def max_staleness(self) -> int | None:
        """How many updates by others may lie between a step's reading and its own update; None: any number."""
        return self._max_staleness

    @property
    def lazy_rows(self) -> bool:
        """Whether every optimizer updates only the rows of a table that a step has looked up."""
        return self._lazy_rows


class _OneReplicaExtended(compat.ParameterServerStrategyV2Extended):  # type: ignore[misc]  # TensorFlow is untyped
    """TensorFlow's own, for workers with one device each: a step stays in its replica's context.

    TensorFlow leaves that context to combine replicas, which no conditional allows: Keras's optimizers accumulate
    gradients and scale losses in conditionals. One replica has nobody to combine with.
    """

    _retrace_functions_for_each_device = False

    def _use_merge_call(self) -> bool:
        return False

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        del reduce_op, options
        return value

    def _replica_ctx_update(self, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        return self._update(var, fn, args, kwargs or {}, group)


def _told_cluster(given: Any) -> tuple[Any, ClusterSpec | None]:
    """The cluster of the launched job, else of `given` or TF_CONFIG, for the chief, when all servers are there: its
    resolver and itself. In a worker or a parameter server: serves, and never returns.

    Args:
        given: A cluster resolver, or None. One without a task type, as for servers in threads of this process, is taken
            as it is, and is not looked at: the second value is None.

    Raises:
        ConfigurationError: there is no cluster with all that it needs; see `serve` and `attend` for others.
        StartError: a server did not come in time.
    """
    if given is not None and not given.task_type:
        refuse_too_few_threads(len(given.cluster_spec().as_dict().get(WORKER, ())))
        return given, None
    world = current_world()
    if not world.launched:
        own_departure()
    by_hand = read_tf_config(os.environ) if given is None else place_of(given)
    place = world.place if world.launched else by_hand
    cluster, task = checked_server_cluster(place, is_launched=world.launched)
    if task.type != CHIEF:
        serve(cluster, task)
    attend(cluster)
    resolver = given or tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.as_dict()), task_type=CHIEF, task_id=task.index, rpc_layer="grpc"
    )
    return resolver, cluster
