"""The real package ``nvidia-ml-py`` over a library that stands in for NVIDIA's, with C functions of the same names.

No test here has seen a GPU: what a real driver answers for MIG and under WSL2 is taken from NVML's documentation.
"""

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.host_resources import Gpu, num_workers_for, read_gpus, visible_gpus
from paceline.launcher.workers.worker_environment import plan_workers
from paceline.rendezvous.agent_messages import Here, decode
from paceline.wire.codec import encode

DRIVER_FILES = "paceline.launcher.workers.host_resources._DRIVER_FILES"


@dataclass(frozen=True)
class Board:
    """A GPU as the driver has it."""

    uuid: str
    opening: int = pynvml.NVML_SUCCESS
    """What opening it returns."""
    mig: int = pynvml.NVML_ERROR_NOT_SUPPORTED
    """What asking for its MIG mode returns."""
    mig_modes: tuple[int, int] = (0, 0)
    """Now, and after the next reset."""
    instances: dict[int, str] = field(default_factory=dict)
    """By number: MIG instances leave gaps when they are destroyed."""


class Driver:
    """``libnvidia-ml.so.1`` of a machine with `boards`; a handle is a board's number, or 100 times that and a slot."""

    num_slots = 7  # NVML gives the largest number of instances, not how many there are

    def __init__(self, boards: Sequence[Board], starting: int = pynvml.NVML_SUCCESS) -> None:
        self.boards, self.starting, self.users = boards, starting, 0
        uint, pointer = ctypes.c_uint, ctypes.c_void_p
        self.nvmlInitWithFlags = self._function(self._start, uint)
        self.nvmlShutdown = self._function(self._stop)
        self.nvmlDeviceGetCount_v2 = self._function(lambda to: self._put(to, len(self.boards)), pointer)
        self.nvmlDeviceGetHandleByIndex_v2 = self._function(self._open, uint, pointer)
        self.nvmlDeviceGetUUID = self._function(self._uuid, pointer, pointer, uint)
        self.nvmlDeviceGetMigMode = self._function(self._mig_mode, pointer, pointer, pointer)
        self.nvmlDeviceGetMaxMigDeviceCount = self._function(
            lambda handle, to: self._put(to, self.num_slots), pointer, pointer
        )
        self.nvmlDeviceGetMigDeviceHandleByIndex = self._function(self._open_instance, pointer, uint, pointer)

    @staticmethod
    def _function(function, *arguments):
        return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(function)

    @staticmethod
    def _put(address: int, number: int) -> int:
        ctypes.c_uint.from_address(address).value = number
        return pynvml.NVML_SUCCESS

    def _start(self, flags: int) -> int:
        self.users += self.starting == pynvml.NVML_SUCCESS
        return self.starting

    def _stop(self) -> int:
        self.users -= 1
        return pynvml.NVML_SUCCESS

    def _open(self, index: int, to: int) -> int:
        ctypes.c_void_p.from_address(to).value = index + 1
        return self.boards[index].opening

    def _open_instance(self, handle: int, slot: int, to: int) -> int:
        if slot not in self.boards[handle - 1].instances:
            return pynvml.NVML_ERROR_NOT_FOUND
        ctypes.c_void_p.from_address(to).value = 100 * handle + slot
        return pynvml.NVML_SUCCESS

    def _uuid(self, handle: int, to: int, size: int) -> int:
        board = self.boards[(handle if handle < 100 else handle // 100) - 1]
        text = (board.uuid if handle < 100 else board.instances[handle % 100]).encode() + b"\0"
        assert len(text) <= size
        ctypes.memmove(to, text, len(text))
        return pynvml.NVML_SUCCESS

    def _mig_mode(self, handle: int, now: int, pending: int) -> int:
        board = self.boards[handle - 1]
        self._put(now, board.mig_modes[0])
        self._put(pending, board.mig_modes[1])
        return board.mig


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    """Puts a driver into this machine."""

    def put(*boards: Board, starting: int = pynvml.NVML_SUCCESS) -> Driver:
        driver = Driver(boards, starting)
        monkeypatch.setattr(pynvml, "CDLL", {"libnvidia-ml.so.1": driver}.__getitem__)
        monkeypatch.setattr(pynvml, "nvmlLib", None)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(DRIVER_FILES, (Path(__file__),))
        return driver

    return put


def whole(letter: str, **answers: int) -> Board:
    return Board(f"GPU-{letter}", **answers)


def divided(letter: str, instances: dict[int, str], modes: tuple[int, int] = (1, 1)) -> Board:
    return Board(f"GPU-{letter}", mig=pynvml.NVML_SUCCESS, mig_modes=modes, instances=instances)


def gpus_of_workers(num_workers: int, variables: dict[str, str]) -> list[tuple[str | None, bool]]:
    identities = [
        WorkerIdentity(
            task=Task(WORKER, rank),
            rank=rank,
            world_size=num_workers,
            local_rank=rank,
            local_world_size=num_workers,
            generation=1,
            job_id="ab12",
            seed=7,
        )
        for rank in range(num_workers)
    ]
    return [(plan.gpu, plan.gpu_is_shared) for plan in plan_workers(identities, None, visible_gpus(variables))]


def test_gpus_under_wsl2_are_counted(install):
    """They were not: WSL2 has no /proc/driver/nvidia and no /dev/nvidia0; each worker then took all GPUs."""
    driver = install(whole("a", mig=pynvml.NVML_ERROR_UNKNOWN), whole("b", mig=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND))
    assert visible_gpus({}) == ("0", "1")
    assert num_workers_for((0, 1, 2, 3), None, visible_gpus({})) == 2
    assert gpus_of_workers(2, {}) == [("0", False), ("1", False)]
    assert driver.users == 0, "NVML is given back"


def test_each_mig_instance_is_a_device(install):
    """A divided GPU was counted as one, and all its workers would have met in its first instance."""
    install(divided("a", {0: "MIG-c", 2: "MIG-d"}), whole("b"), divided("e", {}))
    assert read_gpus() == (Gpu("GPU-a", ("MIG-c", "MIG-d")), Gpu("GPU-b", None), Gpu("GPU-e", ()))
    assert visible_gpus({}) == ("MIG-c", "MIG-d", "GPU-b")
    facts = facts_of_this_host(JobDescription(command=("true",), num_workers=3, environment={}))
    told = decode(encode(Here(facts)))  # as it travels from another host
    assert isinstance(told, Here)
    assert told.facts.gpus == ("MIG-c", "MIG-d", "GPU-b")
    # NCCL refuses two instances of one GPU, as it does two ranks on one: these workers send through MPI.
    assert gpus_of_workers(3, {}) == [("MIG-c", True), ("MIG-d", True), ("GPU-b", True)]
    assert gpus_of_workers(1, {}) == [("MIG-c", False)]


def test_a_mig_mode_that_only_the_next_reset_brings_is_not_on(install):
    install(divided("a", {}, modes=(0, 1)), whole("b"))
    assert visible_gpus({}) == ("0", "1")


def test_what_this_process_may_not_open_is_no_gpu_of_its_own(install):
    """NVML counts the machine's GPUs also in a container or a Slurm step that was given fewer of them."""
    install(whole("a", opening=pynvml.NVML_ERROR_NO_PERMISSION), whole("b"), whole("c"))
    assert visible_gpus({}) == ("0", "1")


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("1", ("1",)),
        ("MIG-c,MIG-d", ("MIG-c", "MIG-d")),
        ("", ()),
        ("-1", ()),
        ("1,2,0", ("1",)),
        ("GPU-b", ("GPU-b",)),
    ],
)
def test_the_users_own_list_stays(install, listed: str, names: tuple[str, ...]):
    install(divided("a", {0: "MIG-c", 1: "MIG-d", 2: "MIG-f"}), whole("b"))
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": listed}) == names


def test_without_an_answer_device_files_are_counted(install, monkeypatch: pytest.MonkeyPatch):
    """NVML refuses after an update of the driver until the new one is loaded; older installations lack the package."""
    monkeypatch.setattr("paceline.launcher.workers.host_resources._count_gpus", lambda: 3)
    install(whole("a"), starting=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert visible_gpus({}) == ("0", "1", "2")
    install(whole("a"))
    assert visible_gpus({}) == ("0",)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert visible_gpus({}) == ("0", "1", "2")


def test_a_host_without_a_driver_does_not_wait_for_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(DRIVER_FILES, (tmp_path / "dxg",))
    monkeypatch.delitem(sys.modules, "pynvml")
    assert read_gpus() is None
    assert "pynvml" not in sys.modules
