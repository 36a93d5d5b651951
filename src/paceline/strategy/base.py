"""What all synchronous Paceline strategies share: a public `tf.distribute.Strategy` over the one engine."""

from typing import Any

import tensorflow as tf

from paceline.cluster.row_shares import check_number, shares_in
from paceline.cluster.server_cluster import refuse_beside_servers
from paceline.comm.counted_group import CountedGroup
from paceline.comm.world import World
from paceline.strategy.extended import PacelineExtended


def local_device(world: World) -> str:
    """The device of this rank: the GPU that the launcher left visible, else the CPU."""
    del world  # CUDA_VISIBLE_DEVICES was narrowed to one GPU per worker
    return "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"


class SynchronousStrategy(tf.distribute.Strategy):  # type: ignore[misc]  # TensorFlow is untyped
    """Every replica computes its rows of the global batch; gradients are summed; all replicas stay equal.

    Args:
        world: This process's place in the job.
        device: This rank's device.
        broadcast_new_variables: See `PacelineExtended`.
    """

    named_by_script = True
    """Whether a strategy of this class is there because the script asked for it."""

    one_input_pipeline = False
    """Whether the function given to `distribute_datasets_from_function` makes the data of all replicas.

    As in `tf.distribute`: the strategies of one host have one pipeline, whose batches go round the replicas; where each
    worker is a replica of many hosts, it has a pipeline of its own, and the function is told which.
    """

    def __init__(self, world: World, device: str, *, broadcast_new_variables: bool = True) -> None:
        if world.identity.in_world and (shares := shares_in()):
            check_number(len(shares), world.data.size)
        if world.launched and world.size == 1:
            refuse_beside_servers(world.place, type(self).__name__)
        super().__init__(
            PacelineExtended(self, device, world, world.data, broadcast_new_variables=broadcast_new_variables)
        )
        self._world = world
        if self.named_by_script:
            named_strategies.append(type(self).__name__)

    def __deepcopy__(self, memo: dict[int, Any]) -> "SynchronousStrategy":
        # A place in the job cannot be doubled: what is copied along with its strategy stays under this one.
        memo[id(self)] = self
        return self

    @property
    def world(self) -> World:
        """This process's place in the job."""
        return self._world

    @property
    def group(self) -> CountedGroup:
        """The replicas of the model: they sum gradients, share batches and compare data with each other."""
        group: CountedGroup = self.extended.group
        return group

    @property
    def fit_group(self) -> CountedGroup:
        """The ranks that call `fit` of one model together, and must decide alike: its replicas, if nobody else."""
        return self.group

    @property
    def models(self) -> tuple[tuple[int, ...], ...]:
        """Of each model that the job trains, the ranks that take its steps together."""
        return self._world.models

    @property
    def cluster_resolver(self) -> Any:
        """A `tf.distribute.cluster_resolver.ClusterResolver` with `task_type`, `task_id` and `cluster_spec()`.

        None in a process that is alone, as in `tf.distribute`'s single-worker strategies.
        """
        place = self._world.place
        if place is None:
            return None
        cluster, task = place
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster.as_dict()),
            task_type=task.type,
            task_id=task.index,
            num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
        )


named_strategies: list[str] = []
"""The classes of the strategies made so far: a script that named one gets no strategy by itself."""
