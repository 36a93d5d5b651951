"""How this worker's numbers reach the others: decided when the script imports TensorFlow, which knows of GPUs.

TensorFlow's own collectives must be set up before TensorFlow's first operation; no other moment is early enough.
"""

from collections.abc import Mapping
from types import ModuleType

from paceline.cluster.communication import Communication, communication
from paceline.comm.world import World
from paceline.importing import after_import


def arrange_communication(world: World, variables: Mapping[str, str]) -> None:
    """Arranges for what PACELINE_COMMUNICATION says, or for what fits this rank's device.

    Raises:
        ConfigurationError: the variable says something unknown.
    """
    communication(variables, num_gpus=0)
    if world.size == 1:
        return

    def choose(tensorflow: ModuleType) -> None:
        num_gpus = len(tensorflow.config.list_physical_devices("GPU"))
        chosen = communication(variables, num_gpus)
        if chosen is not Communication.MPI:
            from paceline.strategy.collective_runtime import use_tensorflow_collectives

            use_tensorflow_collectives(world, chosen)

    after_import("tensorflow", choose)
