"""What carries the numbers: the user's word, else what fits the rank's device."""

from collections.abc import Mapping

import pytest

from paceline.cluster.communication import Communication, communication
from paceline.errors import ConfigurationError


@pytest.mark.parametrize(
    ("variables", "num_gpus", "expected"),
    [
        ({}, 0, Communication.MPI),
        ({}, 8, Communication.MPI),  # not narrowed by a launcher: every rank would take the first of the eight
        ({"CUDA_VISIBLE_DEVICES": "3"}, 1, Communication.NCCL),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 0, Communication.MPI),  # TensorFlow was built without GPUs
        ({"CUDA_VISIBLE_DEVICES": ""}, 0, Communication.MPI),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 1, Communication.MPI),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5a1b"}, 1, Communication.NCCL),
        ({"PACELINE_COMMUNICATION": ""}, 0, Communication.MPI),
        ({"PACELINE_COMMUNICATION": "ring"}, 0, Communication.RING),
        ({"PACELINE_COMMUNICATION": " RING "}, 0, Communication.RING),
        ({"PACELINE_COMMUNICATION": "mpi", "CUDA_VISIBLE_DEVICES": "0"}, 1, Communication.MPI),
        ({"PACELINE_COMMUNICATION": "nccl"}, 0, Communication.NCCL),  # refused later, where TensorFlow is known
    ],
)
def test_choice(variables: Mapping[str, str], num_gpus: int, expected: Communication) -> None:
    assert communication(variables, num_gpus) is expected


def test_an_unknown_word_is_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        communication({"PACELINE_COMMUNICATION": "gloo"}, num_gpus=0)
    assert str(caught.value) == (
        "the environment has 1 fault:\n"
        '  PACELINE_COMMUNICATION: received "gloo"; expected mpi or ring or nccl. '
        "Fix: write --communication mpi. [option]"
    )
