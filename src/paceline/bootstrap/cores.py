"""Binding this worker to the cores that the launcher gave it."""

import os
from collections.abc import Mapping

from paceline.cluster import environment


def bind_to_cores(variables: Mapping[str, str]) -> None:
    """Restricts this process, and every thread that it will start, to the cores in PACELINE_CPUS.

    Must run before a library starts threads. Where the system cannot bind (macOS) or the cores are gone, the worker
    runs unbound.
    """
    text = variables.get(environment.CPUS)
    if not text or not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, {int(core) for core in text.split(",")})
    except (OSError, ValueError):
        return
