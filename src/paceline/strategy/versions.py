"""What must be the same on all ranks for their numbers to be."""

import platform
from importlib import metadata

import tensorflow as tf


def versions() -> dict[str, str]:
    """Name and version of Python and of each library that computes."""
    found = {"Python": platform.python_version(), "TensorFlow": str(tf.__version__)}
    for name, distribution in (("Keras", "keras"), ("Paceline", "paceline")):
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
