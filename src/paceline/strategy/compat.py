"""Every private name of TensorFlow that Paceline uses, why, and a check at import that it is there.

Nothing else in Paceline may import `tensorflow.python`. Tested with TensorFlow 2.21; when an import below fails on a
newer one, this is the only file to mend.

| name | why there is no public way |
|---|---|
| `one_device_strategy.OneDeviceExtended` | a `tf.distribute.Strategy` is its `extended`; this one keeps one device |
| `distribute_lib.ReplicaContext` | what `tf.distribute.get_replica_context()` answers inside `strategy.run` |
| `distribute_lib.UpdateContext`, `.get_update_replica_id` | what `strategy.extended.update` runs its function in |
| `ParameterServerStrategyV2`, `…Extended` | `ClusterCoordinator` wants this class; its public name is Paceline's |
| `distribute_lib._push_per_thread_mode`, `._pop_per_thread_mode`, `._get_default_replica_mode` | to be in no strategy |
| `Graph._variable_creator_stack` | who makes variables in a strategy's scope |
| `ConcreteFunction._call_flat` | where every call of a traced function goes (`fit/own_functions.py`) |
| `record.could_possibly_record` | whether a tape would record a call |
| `pywrap_tfe.TFE_Py_TapeSetRestartOnThread`, `…StopOnThread` | tapes do not record in `tf.init_scope` |
| `distribute_utils.create_mirrored_variable` | makes a variable with `aggregation` as `tf.distribute` does |
| `ps_values.CachingVariable`, `.AggregatingVariable`, `sharded_variable.ShardedVariable` | variables on servers |
| `cluster_coordinator`: queue and threads of the coordinator, the failures that it handles | see `coordination.py` |
| its handler of lost workers, and `context.update_server_def` | see `recovery.py` |
| `Context.ensure_initialized`, `.set_server_def`, `._context_handle` | see `own_devices.py` |
| `coordinator_context.with_dispatch_context`, `.get_current_dispatch_context` | on whose worker's thread Python runs |
| `context.executor_scope`, `.get_server_def`, `cancellation.CancellationManager` | what the coordinator calls with |
| `resource_variable_ops.BaseResourceVariable` | a variable that lives as long as one call of a graph |
| `values.MirroredVariable`, `.SyncOnReadVariable` | its variables: combined when assigned, when read |
| `distribute_lib.InputContext`, `ValueContext` | public as types, made by strategies only |
| `dataset_ops.UnaryUnchangedStructureDataset`, `iterator_ops.OwnedIterator` | what a dataset, an iterator derive from |
| `resource_variable_ops.ResourceVariable` | a variable made past all creator scopes (the token of the collectives) |
| `context.global_seed` | whether and how the script has seeded TensorFlow; asking the public way draws a number |
| `context.context` | to give the runtime a cluster for TensorFlow's own collectives without TensorFlow's own strategy |
| `context.function_call_options` | with which TensorFlow calls a function (`pipeline/direct_calls.py`) |
| `script_ops._py_funcs._funcs` | a function under a name of one's own, which another process can call |
| `script_ops.EagerFunc`, `._py_funcs` | what `tf.numpy_function` calls through; itself it is 4 to 12 times as slow |
| `tf.__internal__.autograph.tf_convert` | `strategy.run(tf.function)`: its Python, traced within the step |
| `tf.function(…)._autograph`, `type(tf.function(…)).__call__` | the same for a `tf.function` that a step calls |
| `stateful_random_ops` | whether TensorFlow's global generator has been made; asking the public way makes it |
| `random_seed.get_seed` | what random operations ask for their seeds |
| `gen_random_ops` | where `tf.random` makes its operations: only there are seed and shape known together |
| `control_flow_v2_func_graphs.WhileBodyFuncGraph` | to know whether a draw is built within a loop |
| `gen_dataset_ops`, `gen_experimental_dataset_ops` | where `tf.data` makes its stages (`data/order/stage_orders.py`) |
| `ops.RegisterGradient`, `.gradient_registry._registry` | keeps custom gradients, and their graphs, for ever |
| `FuncGraph.outer_graph` | the graph around one |
| `ops.get_default_graph` | to know in which graph a collective is built (the public one is the v1 alias of it) |
| `tsl.profiler.protobuf.xplane_pb2` | what TensorFlow's profiler writes (`operation_timeline.py`) |
| `tensorflow._api.v2` (modules) | the copies of `tf.distribute`; `bootstrap/drop_in.py` waits for their import |
"""

import contextlib
import logging
from typing import Any

import tensorflow as tf

try:
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.data.ops.dataset_ops import UnaryUnchangedStructureDataset
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator
    from tensorflow.python.distribute.coordinator import cluster_coordinator, coordinator_context
    from tensorflow.python.distribute.distribute_lib import (
        ReplicaContext,
        UpdateContext,
        _get_default_replica_mode,
        _pop_per_thread_mode,
        _push_per_thread_mode,
        get_update_replica_id,
    )
    from tensorflow.python.distribute.distribute_utils import create_mirrored_variable
    from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended
    from tensorflow.python.distribute.parameter_server_strategy_v2 import (
        ParameterServerStrategyV2,
        ParameterServerStrategyV2Extended,
    )
    from tensorflow.python.distribute.ps_values import AggregatingVariable, CachingVariable
    from tensorflow.python.distribute.sharded_variable import ShardedVariable
    from tensorflow.python.distribute.values import MirroredVariable, SyncOnReadVariable
    from tensorflow.python.eager import record
    from tensorflow.python.eager.cancellation import CancellationManager
    from tensorflow.python.eager.context import Context, context, executor_scope, get_server_def, global_seed
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
    from tensorflow.python.framework import random_seed
    from tensorflow.python.framework.func_graph import FuncGraph
    from tensorflow.python.framework.ops import RegisterGradient as RegisterGradient
    from tensorflow.python.framework.ops import get_default_graph, gradient_registry
    from tensorflow.python.ops import (
        gen_dataset_ops,
        gen_experimental_dataset_ops,
        gen_random_ops,
        stateful_random_ops,
    )
    from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, ResourceVariable
    from tensorflow.python.ops.script_ops import EagerFunc
    from tensorflow.python.ops.script_ops import _py_funcs as python_functions
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    may_record = record.could_possibly_record
    _ = ConcreteFunction._call_flat
    _named_functions = python_functions._funcs
    _gradients_by_name = gradient_registry._registry
    _ = FuncGraph.outer_graph
    _ = (Context.function_call_options, Context.ensure_initialized, Context.set_server_def)
    _ = context()._context_handle
    _restart_tapes, _stop_tapes = pywrap_tfe.TFE_Py_TapeSetRestartOnThread, pywrap_tfe.TFE_Py_TapeSetStopOnThread

    FAILURES_ON_WORKERS = (
        tf.errors.OpError,
        cluster_coordinator.ClosureInputError,
        cluster_coordinator.ClosureAbortedError,
        TypeError,
    )
    """What a worker's thread raises if its worker, or a server, does not answer; and for other reasons."""

    _losses_of_processes = (cluster_coordinator._is_worker_failure, cluster_coordinator._is_ps_failure)
except (ImportError, AttributeError) as fault:
    raise ImportError(
        f"Paceline does not support TensorFlow {tf.__version__}: a name that Paceline needs is missing "
        f"({fault}). Install a TensorFlow that Paceline supports (2.17 to 2.21), or a newer Paceline. [version]"
    ) from fault

dataset_operations = (gen_dataset_ops, gen_experimental_dataset_ops)
ON_SERVERS = (CachingVariable, AggregatingVariable, ShardedVariable)
"""The classes of the variables that a `ParameterServerStrategy` makes."""


COORDINATOR_OF_STRATEGY = "_cluster_coordinator"
"""What a `ClusterCoordinator` asks its strategy for first: the one that there is already."""


def register_function(token: str, function: Any) -> None:
    """From now on `tf.raw_ops.PyFunc` on this process's devices finds `function`, from arrays to one, under `token`.

    TensorFlow holds the function weakly; here it is held as long as the process lives.
    """
    _named_functions[token] = function
    _kept.append(function)


_kept: list[Any] = []


def call_config() -> bytes:
    """The configuration with which TensorFlow calls functions now: how their graphs are optimised and placed."""
    return bytes(context().function_call_options.config_proto_serialized)


def queue_of(coordinator: Any) -> Any:
    """The queue from which the threads of a `ClusterCoordinator` take closures; each thread is for one worker."""
    return coordinator._cluster.closure_queue


def graph_function_of(closure: Any) -> Any:
    """The concrete function of what `schedule` has put into the queue; None: it was given no `tf.function`."""
    return getattr(closure, "_concrete_function", None)


def is_loss_of_process(fault: BaseException) -> bool:
    """Whether the coordinator may handle what a function has raised: a worker or a server is lost."""
    return any(is_one(fault) for is_one in _losses_of_processes)


def is_loss_of_server(fault: BaseException) -> bool:
    """Whether what an operation has raised says that a parameter server does not answer any more."""
    return bool(cluster_coordinator._is_ps_failure(fault))


def fault_told_by(record: logging.LogRecord) -> BaseException | None:
    """What has been raised, if the coordinator logs that; None: another record."""
    if record.module != cluster_coordinator.__name__.rpartition(".")[2]:
        return None
    told = record.args if isinstance(record.args, tuple) else ()
    return next((one for one in told if isinstance(one, BaseException)), None)


def failures_of(coordinator: Any) -> Any:
    """Two functions of what has failed in a worker's thread: whether the network has failed for a moment, so that it is
    tried again, and whether the worker is lost.
    """
    cluster = coordinator._cluster

    def is_passing(fault: BaseException) -> bool:
        return bool(
            cluster._record_and_ignore_transient_ps_failure(fault)
            or cluster._record_and_ignore_transient_timeouts(fault)
            # What follows for a step from the failure of another's message to a server.
            or (isinstance(fault, tf.errors.CancelledError) and "/job:" in str(fault))
        )

    def is_loss(fault: BaseException) -> bool:
        return (
            cluster_coordinator._is_worker_failure(fault) and not cluster.closure_queue._cancellation_mgr.is_cancelled
        )

    return is_passing, is_loss


def set_failure_handler(coordinator: Any, handler: Any) -> None:
    """Puts `handler` in place of the coordinator's own, before anything has been scheduled."""
    cluster = coordinator._cluster
    cluster.failure_handler.stop()
    for holder in (cluster, *cluster.workers):
        holder.failure_handler = handler


def workers_of(coordinator: Any) -> Any:
    """What a `ClusterCoordinator` has for each worker; see `current_worker`."""
    return coordinator._cluster.workers


def made_on_workers(coordinator: Any, functions: Any) -> Any:
    """What each function returns that is called on its worker, also on one that comes back: `PerWorkerValues`."""
    workers = workers_of(coordinator)
    made = [worker.create_resource(function) for worker, function in zip(workers, functions, strict=True)]
    return cluster_coordinator.PerWorkerValues(tuple(made))


def dispatch_to(worker: Any) -> Any:
    """A context on a worker's thread, in which `current_worker` is this worker."""
    return coordinator_context.with_dispatch_context(worker)


def own_job() -> str:
    """The role of this process in the cluster that TensorFlow is connected to: `chief`."""
    return str(get_server_def().job_name)


def current_worker() -> Any:
    """The worker whose thread this is; has a `device_name`, an `executor` and a `worker_index`."""
    return coordinator_context.get_current_dispatch_context().worker


def argument_on(worker: Any, argument: Any) -> Any:
    """`argument`, or what this worker has of it if it is a `PerWorkerValues`.

    Raises:
        ClosureInputError: the worker's own could not be made, or was lost with the worker.
    """
    own = cluster_coordinator._select_worker_slice(worker.worker_index, argument)
    if fault := cluster_coordinator._get_error_from_remote_values(own):
        raise cluster_coordinator.ClosureInputError(fault)
    return coordinator_context.maybe_get_remote_value(own)


def has_devices() -> bool:
    """Whether TensorFlow has set up the devices of this process, with the names that they have from then on."""
    return context()._context_handle is not None


def function_graphs() -> list[Any]:
    """The graphs of the functions that are being traced here, from the innermost one outwards."""
    graph, graphs = get_default_graph(), []
    while isinstance(graph, FuncGraph):
        graphs.append(graph)
        graph = graph.outer_graph
    return graphs


def forget_gradient(name: str) -> None:
    """No operation has a gradient of this name any more."""
    _gradients_by_name.pop(name, None)


@contextlib.contextmanager
def outside_of_graphs() -> Any:
    """As `tf.init_scope`, but tapes that are made in it record."""
    with tf.init_scope():
        _restart_tapes()
        try:
            yield
        finally:
            _stop_tapes()


@contextlib.contextmanager
def default_strategy() -> Any:
    """While this lasts, this thread is in no strategy's scope and in no replica, also for variables that are made."""
    graph = get_default_graph()  # of eager code, too: there it is only where TensorFlow keeps these two stacks
    creators, graph._variable_creator_stack = graph._variable_creator_stack, []
    _push_per_thread_mode(_get_default_replica_mode())
    try:
        yield
    finally:
        _pop_per_thread_mode()
        graph._variable_creator_stack = creators


@contextlib.contextmanager
def being_scheduled(strategy: Any) -> Any:
    """The scope of a `ParameterServerStrategy` in which a step is traced, as by `ClusterCoordinator.schedule`."""
    with strategy.scope():
        strategy.extended._being_scheduled = True
        try:
            yield
        finally:
            strategy.extended._being_scheduled = False


def for_graphs(function: Any) -> Any:
    """The Python of a `tf.function`, for a graph that is being built: converted as TensorFlow would trace it.

    Keras's own steps are not converted, and what they call is not either; a `tf.function` in them is.
    """
    # Not `function` itself: who keeps this by it would keep both for ever.
    python_function, signature = function.python_function, function.input_signature or ()
    converts = getattr(function, "_autograph", True)

    def called(*args: Any, **kwargs: Any) -> Any:
        args = (*map(_as_specified, args, signature), *args[len(signature) :])
        if not converts:
            return python_function(*args, **kwargs)
        now = tf.__internal__.autograph.control_status_ctx()
        enabled = type(now)(status=type(now.status).ENABLED)
        with enabled:
            return tf.__internal__.autograph.tf_convert(python_function, enabled)(*args, **kwargs)

    return called


def _as_specified(argument: Any, spec: Any) -> Any:
    """An argument made the tensor that an `input_signature` says it is."""
    if isinstance(spec, tf.TensorSpec) and not tf.is_tensor(argument):
        return tf.convert_to_tensor(argument, spec.dtype)
    return argument


__all__ = [
    "ON_SERVERS",
    "BaseResourceVariable",
    "CancellationManager",
    "ConcreteFunction",
    "EagerFunc",
    "MirroredVariable",
    "OneDeviceExtended",
    "OwnedIterator",
    "ParameterServerStrategyV2",
    "ParameterServerStrategyV2Extended",
    "ReplicaContext",
    "ResourceVariable",
    "ShardedVariable",
    "SyncOnReadVariable",
    "UnaryUnchangedStructureDataset",
    "UpdateContext",
    "WhileBodyFuncGraph",
    "XSpace",
    "call_config",
    "context",
    "create_mirrored_variable",
    "dataset_operations",
    "executor_scope",
    "for_graphs",
    "gen_random_ops",
    "get_default_graph",
    "get_server_def",
    "get_update_replica_id",
    "global_seed",
    "has_devices",
    "may_record",
    "python_functions",
    "random_seed",
    "register_function",
    "stateful_random_ops",
]
