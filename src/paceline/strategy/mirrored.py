"""`MirroredStrategy`: the devices of this host, one process each; `OneDeviceStrategy`: one process with one device."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf

from paceline.comm.world import World, current_world
from paceline.strategy.base import SynchronousStrategy, local_device


class MirroredStrategy(SynchronousStrategy):
    """Trains on all devices of this host; drop-in for `tf.distribute.MirroredStrategy`.

        strategy = paceline.MirroredStrategy()      # paceline.MirroredStrategy(["GPU:0", "GPU:1"]): these two
        with strategy.scope():
            model = build_and_compile()
        model.fit(dataset, epochs=3)

    Under `paceline run` it trains on all workers of the job. In a plain `python train.py` with several devices, the
    process replaces itself with `paceline run --workers K` of the same command line (one process per device). Where
    this is impossible (a notebook, pytest), it raises an error that names `paceline.launch`.

    Args:
        devices: Device names, e.g. ``["GPU:0", "GPU:1"]``; all GPUs, else the CPU, when None.
        cross_device_ops: Accepted for compatibility; Paceline chooses how to communicate.

    Raises:
        RuntimeError: several devices, and this process cannot replace itself.
    """

    one_input_pipeline = True

    def __init__(self, devices: Sequence[str] | None = None, cross_device_ops: Any = None) -> None:
        del cross_device_ops
        world = current_world()
        names = _device_names(devices)
        if not world.launched and world.size == 1 and len(names) > 1:
            relaunch_over(len(names), type(self).__name__, "devices")
        super().__init__(world, _own_device(world, names))


def _device_names(devices: Sequence[str] | None) -> list[str]:
    if devices is not None:
        return list(devices)
    return [f"GPU:{index}" for index in range(len(tf.config.list_physical_devices("GPU")))] or ["CPU:0"]


def _own_device(world: World, names: Sequence[str]) -> str:
    if all("cpu" in name.lower() for name in names):
        return "/cpu:0"
    return local_device(world) if world.size > 1 else names[0]


def relaunch_over(workers: int, strategy: str, what: str) -> NoReturn:
    """Replaces this process with `paceline run --workers N` of the same script and arguments.

    Args:
        workers: How many processes are needed.
        strategy: The name of the class that needs them, and
        what: what it has so many of, for the user.

    Raises:
        RuntimeError: `__main__` is no script file (a notebook, an interactive shell, pytest).
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    in_notebook = "ipykernel" in sys.modules
    under_test = "pytest" in sys.modules or "unittest" in Path(sys.argv[0]).name
    if script is None or in_notebook or under_test or not Path(script).is_file():
        raise RuntimeError(
            f"{strategy} over {workers} {what} needs {workers} processes, but this process (a notebook, "
            "an interactive shell or a test) cannot start itself again. Put the training into a function and "
            f"call paceline.launch(function, workers={workers}), or run a script with `paceline run --workers "
            f"{workers}`. [not-a-rank]"
        )
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    target = ["-m", spec.name.removesuffix(".__main__")] if spec is not None else [script]
    # -P: without it, `-m` would let a `signal.py` in the current directory replace the standard library's.
    command = [sys.executable, "-P", "-m", "paceline", "run", "--workers", str(workers), *target, *sys.argv[1:]]
    print(  # said to the user of a script, before any logging of theirs can be configured
        f"paceline: {strategy} over {workers} {what}: starting again as `paceline run --workers {workers} "
        f"{shlex.join([*target, *sys.argv[1:]])}`",
        file=sys.stderr,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, command)


class OneDeviceStrategy(SynchronousStrategy):
    """Trains on one device; drop-in for `tf.distribute.OneDeviceStrategy`.

        strategy = paceline.OneDeviceStrategy("/cpu:0")     # although there may be a GPU
        with strategy.scope():
            model = build_and_compile()
        model.fit(dataset, epochs=3)

    Under `paceline run --workers N`, the N workers train together, each on its own device of this kind.

    Args:
        device: E.g. ``"/cpu:0"`` or ``"/gpu:0"``.
    """

    one_input_pipeline = True

    def __init__(self, device: str) -> None:
        super().__init__(current_world(), device)
