"""The one comparison of versions: of this Paceline with its peer's, and of the programs that ranks and hosts run.

Two versions of Paceline share no messages and are told so before the first one (``handshake.py``, ``ssh_line.py``).
"""

import platform
from collections.abc import Mapping

from paceline import __version__ as VERSION  # noqa: N812  as a constant

__all__ = ["NOT_INSTALLED", "VERSION", "differences", "installed_versions", "other_paceline", "version_of"]

_PROGRAMS = {
    "TensorFlow": ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu"),
    "Keras": ("keras", "keras-nightly"),
    "Paceline": ("paceline",),
    "MPICH": ("mpich",),
    "llvmlite": ("llvmlite",),  # compiles updates of weights, or nobody does
}
"""Each by the names of the distributions that bring it."""

NOT_INSTALLED = "not installed"


def installed_versions() -> dict[str, str]:
    """Name and version of each program that all ranks must have alike. Reads files, imports none of them."""
    return {
        "Python": platform.python_version(),
        **{name: version_of(*distributions) for name, distributions in _PROGRAMS.items()},
    }


def version_of(*distributions: str) -> str:
    """The version of the first of `distributions` that is installed, or `NOT_INSTALLED`."""
    from importlib import metadata  # slow, and not for who only compares

    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return NOT_INSTALLED


def other_paceline(version: str) -> str:
    """That a peer is a Paceline of another `version`, with both values.

    >>> other_paceline("9.9")
    "it runs Paceline '9.9', and this is Paceline 0.1.0: install the same version everywhere"
    """
    return f"it runs Paceline {version!a}, and this is Paceline {VERSION}: install the same version everywhere"


def differences(theirs: Mapping[str, str], there: str, ours: Mapping[str, str], here: str) -> tuple[str, ...]:
    """What is not the same `there` and `here`, each with both values.

    >>> differences({"Keras": "3.10"}, "rank 1", {"Keras": "3.15"}, "rank 0")
    ('Keras is 3.10 on rank 1, 3.15 on rank 0',)
    """
    return tuple(
        f"{name} is {theirs.get(name, 'absent')} on {there}, {ours.get(name, 'absent')} on {here}"
        for name in dict.fromkeys((*ours, *theirs))
        if theirs.get(name) != ours.get(name)
    )
