"""Which graph collectives fit the way in which a world communicates."""

from paceline.cluster.communication import Communication
from paceline.comm.world import World
from paceline.strategy.bridged_collectives import BridgedCollectives
from paceline.strategy.graph_collectives import GraphCollectives


def graph_collectives_of(world: World) -> GraphCollectives:
    """The collectives of `world` as operations of a graph."""
    if world.communication is Communication.MPI:
        return BridgedCollectives(world)
    # Only a world that talks through TensorFlow's own collectives needs their file.
    from paceline.strategy.native_collectives import NativeCollectives

    return NativeCollectives(world)
