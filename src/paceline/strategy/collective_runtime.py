"""Giving TensorFlow's runtime the cluster that its own collectives need.

The runtime takes a cluster only before its first operation; from then on it is a gRPC server at this task's address in
TF_CONFIG, and its devices are named after job and task. The bootstrap therefore calls this right after TensorFlow has
been imported.

    import tensorflow ─► use_tensorflow_collectives: cluster, leader, own devices only
                      ─► first operation: the runtime starts and listens
                      ─► first collective: the group's members meet at the leader (rank 0)
"""

from collections.abc import Mapping

import tensorflow as tf

from paceline.cluster import job_options
from paceline.cluster.communication import Communication, communication
from paceline.cluster.spec import ClusterSpec, Task
from paceline.comm.group import Group
from paceline.comm.tensorflow_collectives import TensorCollectives, TensorFlowGroup
from paceline.comm.world import World
from paceline.errors import ConfigurationError
from paceline.strategy import compat

_PROTOCOL = "grpc"


def use_tensorflow_collectives(world: World, way: Communication) -> None:
    """Makes `world` talk through TensorFlow's collectives. Local: meets nobody yet.

    Args:
        world: One whose tasks' TF_CONFIG addresses are free for TensorFlow to listen on.
        way: `RING` or `NCCL`.

    Raises:
        ConfigurationError: NCCL without a GPU, or nobody has described the cluster.
        RuntimeError: TensorFlow has run an operation, or the ranks already talk in another way.
    """
    if way is Communication.NCCL and not tf.config.list_physical_devices("GPU"):
        raise ConfigurationError(
            f"{job_options.COMMUNICATION} is 'nccl', but TensorFlow sees no GPU in the process of rank {world.rank}. "
            "Install paceline[gpu] and check CUDA_VISIBLE_DEVICES, or unset the variable to train on CPUs."
            " [communication]"
        )
    if world.place is None:
        raise ConfigurationError(
            f"{job_options.COMMUNICATION} is {way.value!r}, which needs every task's address, but this "
            "process has no TF_CONFIG. Start the job with `paceline run`, or unset the variable. [communication]"
        )
    cluster, task = world.place
    _configure(cluster, task, way)
    collectives = TensorCollectives(world.rank, world.size, way)

    def over(messages: Group) -> Group:
        group = TensorFlowGroup(collectives, messages)
        group.barrier()
        return group

    world.connect_through(way, over)


def refuse_by_hand(variables: Mapping[str, str]) -> None:
    """A process that no launcher started has its TF_CONFIG port in use for its agent, and may have run operations.

    Raises:
        ConfigurationError: PACELINE_COMMUNICATION names TensorFlow's collectives.
    """
    named = communication(variables, num_gpus=0)
    if named is not Communication.MPI:
        raise ConfigurationError(
            f"{job_options.COMMUNICATION} is {named.value!r}, but this process was started by hand, which "
            "supports only 'mpi'. Start the job with `paceline run`, or unset the variable. [communication]"
        )


def _configure(cluster: ClusterSpec, task: Task, way: Communication) -> None:
    context = compat.context()
    leader = cluster.training_tasks[0]
    jobs = {training.type for training in cluster.training_tasks}
    addresses = {type_: addresses for type_, addresses in cluster.as_dict().items() if type_ in jobs}
    try:
        context.configure_collective_ops(
            collective_leader=f"/job:{leader.type}/replica:0/task:{leader.index}",
            scoped_allocator_enabled_ops=(),
            use_nccl_communication=way is Communication.NCCL,
            device_filters=(f"/job:{task.type}/task:{task.index}",),
        )
    except RuntimeError as fault:
        raise RuntimeError(
            f"{job_options.COMMUNICATION}={way.value} must be set up before the first TensorFlow operation, but "
            "this process has already run one (a tensor, a variable, a dataset). Start the script with "
            f"`paceline run`, which sets it up early enough, or unset {job_options.COMMUNICATION} to use MPI. "
            "[communication]"
        ) from fault
    context.enable_collective_ops(
        tf.train.ServerDef(
            cluster=tf.train.ClusterSpec(addresses).as_cluster_def(),
            job_name=task.type,
            task_index=task.index,
            protocol=_PROTOCOL,
            # Without the leader that this holds, the server's side waits in vain.
            default_session_config=context.config,
        )
    )
