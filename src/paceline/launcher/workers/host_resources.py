"""What this host offers to workers: usable cores, the container's limit, GPUs; and which cores each of them gets.

"Usable" is what this process may use, not what the machine has: in a container, under Slurm or `taskset` that
is less.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_DRIVER_FILES = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""One of them is there wherever NVML can work; the last one is WSL2's."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that this process may use."""

    uuid: str
    """``GPU-…``, as CUDA_VISIBLE_DEVICES takes it."""
    instances: tuple[str, ...] | None
    """``MIG-…`` of each MIG instance, perhaps of none; None: the GPU is not in MIG mode."""


def may_have_gpus() -> bool:
    """Whether NVIDIA's driver is here: without it there is no GPU for TensorFlow."""
    return any(file.exists() for file in _DRIVER_FILES)


def read_gpus() -> tuple[Gpu, ...] | None:
    """The GPUs, in the order of NVML; None: NVML does not answer, or the package ``nvidia-ml-py`` is not installed."""
    if not may_have_gpus():
        return None  # the import below takes 50 ms, which a host without GPUs need not wait for
    try:
        import pynvml  # of the extra `gpu`
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            return tuple(_gpus())
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:  # such as a driver that was updated and not yet loaded again
        return None


def _gpus() -> Iterator[Gpu]:
    import pynvml

    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
        except pynvml.NVMLError:
            continue  # counted, but this container may not open it, or it is broken: CUDA leaves it out, too
        try:
            is_divided = pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        except pynvml.NVMLError:  # a GPU without MIG: "not supported", and under WSL2 also "unknown error"
            is_divided = False
        yield Gpu(uuid, tuple(_instances(handle)) if is_divided else None)


def _instances(gpu: object) -> Iterator[str]:
    import pynvml

    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            yield pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except pynvml.NVMLError:
            continue  # no instance has this number


_TOPOLOGY = Path("/sys/devices/system/cpu")
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
_GPU_NODE = re.compile(r"nvidia[0-9]+")


def usable_cores() -> tuple[int, ...]:
    """The cores this process may run on, those of one socket and of one physical core next to each other."""
    return tuple(sorted(os.sched_getaffinity(0), key=_place))


def _place(core: int) -> tuple[int, int, int]:
    topology = _TOPOLOGY / f"cpu{core}" / "topology"
    try:
        socket = int((topology / "physical_package_id").read_text())
        physical_core = int((topology / "core_id").read_text())
    except (OSError, ValueError):  # some containers hide it: the numbers' own order is as good a guess as any
        return (0, core, core)
    return (socket, physical_core, core)


def visible_gpus(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs for workers, as CUDA_VISIBLE_DEVICES names them: the user's own list, else all there are."""
    listed = variables.get("CUDA_VISIBLE_DEVICES")
    gpus = read_gpus()
    if gpus is None:
        return gpu_names(listed, _count_gpus())
    return names_of_all(gpus) if listed is None else gpu_names(listed, len(gpus))


def names_of_all(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Every device that a worker can have to itself: GPUs, and of those in MIG mode each instance; pure.

    CUDA and NVML may number GPUs in different orders. Where every GPU is whole that does no harm, as all numbers are
    given out; beside GPUs in MIG mode, which CUDA counts otherwise, only a UUID says which one is meant.

    >>> names_of_all([Gpu("GPU-a", None), Gpu("GPU-b", None)])
    ('0', '1')
    >>> names_of_all([Gpu("GPU-a", ("MIG-c", "MIG-d")), Gpu("GPU-b", None), Gpu("GPU-e", ())])
    ('MIG-c', 'MIG-d', 'GPU-b')
    """
    if all(gpu.instances is None for gpu in gpus):
        return tuple(str(index) for index in range(len(gpus)))
    return tuple(name for gpu in gpus for name in (gpu.instances if gpu.instances is not None else (gpu.uuid,)))


def gpu_names(listed: str | None, num_present: int) -> tuple[str, ...]:
    """The GPUs in the text of CUDA_VISIBLE_DEVICES, which CUDA reads up to the first that is not there; pure.

    >>> gpu_names("2,3", 4), gpu_names(None, 2), gpu_names("", 2), gpu_names("1,-1,0", 2), gpu_names("0", 0)
    (('2', '3'), ('0', '1'), (), ('1',), ())
    """
    if num_present == 0:
        return ()
    if listed is None:
        return tuple(str(index) for index in range(num_present))
    names: list[str] = []
    for name in (part.strip() for part in listed.split(",")):
        if not name or name.startswith("-") or (name.isdecimal() and int(name) >= num_present):
            break
        names.append(name)
    return tuple(names)


def num_workers_for(cores: Sequence[int], quota: float | None, gpus: Sequence[str]) -> int:
    """How many workers fill this host: one for each GPU, else one for each core that can be used; pure.

    >>> num_workers_for([0, 1, 2, 3], None, []), num_workers_for([0, 1, 2, 3], 1.5, [])
    (4, 1)
    """
    if gpus:
        return len(gpus)
    return len(cores) if quota is None else max(1, min(len(cores), int(quota)))


def _count_gpus() -> int:
    """GPUs that this process can open: the driver lists the machine's, a container is given fewer nodes."""
    if not _NVIDIA_DRIVER.is_dir():
        return 0
    return sum(1 for node in _DEVICES.iterdir() if _GPU_NODE.fullmatch(node.name))


@dataclass(frozen=True, slots=True)
class CoreShare:
    """The cores of one worker."""

    cores: tuple[int, ...]
    """Core numbers as the operating system counts them."""
    num_threads: int
    """How many threads can really run at once; less than `cores` where a quota says so."""


def share_cores(cores: Sequence[int], num_workers: int, quota: float | None = None) -> tuple[CoreShare, ...]:
    """Shares `cores`, in the given order, out to `num_workers` workers; sizes differ by one at most.

    More workers than cores share them in turn. `quota` is how many cores' worth of time they may use
    in all (a container's limit), None without a limit. Pure.

    Workers without cores of their own steal them from each other in the middle of a step, and every worker with a
    thread pool for the whole host makes it worse. So neighbouring cores go together, and no core is idle.

    >>> [share.cores for share in share_cores([0, 1, 2, 3, 4], 2)]
    [(0, 1, 2), (3, 4)]
    >>> [share.cores for share in share_cores([0, 1], 3)]
    [(0,), (1,), (0,)]
    """
    if not cores or num_workers < 1:
        raise ValueError(f"received {len(cores)} cores and {num_workers} workers; expected at least one of each")
    if num_workers >= len(cores):
        sets: list[tuple[int, ...]] = [(cores[worker % len(cores)],) for worker in range(num_workers)]
    else:
        bounds = [_ceiling_division(worker * len(cores), num_workers) for worker in range(num_workers + 1)]
        sets = [tuple(cores[start:end]) for start, end in pairwise(bounds)]
    allowed = len(cores) if quota is None else max(1, int(quota / num_workers))
    return tuple(CoreShare(chosen, min(len(chosen), allowed)) for chosen in sets)


def _ceiling_division(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
