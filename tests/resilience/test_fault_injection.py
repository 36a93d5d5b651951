"""What strikes a process, on a disk: without one that dies."""

import errno
from pathlib import Path

import pytest

from paceline.chaos.plan import Action, Fault, Phase
from paceline.events.worker_events import EpochBegan, FitBegan, FitEnded, StepDone
from paceline.resilience.fault_injection import Chaos, FaultyFolder
from paceline.store.local_folder import LocalFolder


def chaos_of(action: Action, phase: Phase = Phase.STEP, step: int | None = None, generation: int = 1) -> Chaos:
    return Chaos((Fault(action=action, phase=phase, step=step, generation=generation),), generation)


def unfinished(step: int) -> str:
    return f".tmp-step-{step:012d}-job-g1-a1/rank-00000/tensors.safetensors"


def write(folder: FaultyFolder, path: str) -> None:
    for depth in range(path.count("/") + 1):
        folder.make("/".join(path.split("/")[:depth]))
    with folder.writer(path) as file:
        file.write(b"12345678")


def test_an_exception_strikes_once_where_it_should() -> None:
    chaos = chaos_of(Action.EXCEPTION, step=5)
    chaos(EpochBegan(0, 0, 0))
    chaos(StepDone(0, 4, 0))
    with pytest.raises(RuntimeError, match="exception:rank=0,step=5"):
        chaos(StepDone(0, 5, 0))
    chaos(StepDone(0, 5, 0))


def test_several_steps_at_once_are_struck_if_the_step_is_among_them() -> None:
    """Those of one execution, or of a custom loop between two saves of its `TrainingState`."""
    chaos = chaos_of(Action.EXCEPTION, step=6)
    chaos(StepDone(0, 4, 0, num_steps=4))
    with pytest.raises(RuntimeError, match="exception:rank=0,step=6"):
        chaos(StepDone(0, 8, 0, num_steps=4))


def test_the_last_step_is_an_end_and_so_is_the_end_where_nobody_knew_it() -> None:
    for strike in (lambda chaos: chaos(StepDone(0, 5, 0, is_last=True)), lambda chaos: chaos(FitEnded(0, 5))):
        chaos = chaos_of(Action.EXCEPTION, Phase.END)
        chaos(EpochBegan(0, 0, 0))
        with pytest.raises(RuntimeError):
            strike(chaos)


def test_a_restart_is_struck_from_the_second_generation_on_and_once() -> None:
    chaos_of(Action.EXCEPTION, Phase.RESTART)(FitBegan(0, 0, 0, False))
    chaos = chaos_of(Action.EXCEPTION, Phase.RESTART, generation=2)
    with pytest.raises(RuntimeError):
        chaos(FitBegan(0, 0, 0, False))
    chaos(FitBegan(0, 0, 0, False))


def test_the_start_is_the_first_epoch_of_a_generation() -> None:
    chaos = chaos_of(Action.EXCEPTION, Phase.START)
    with pytest.raises(RuntimeError):
        chaos(EpochBegan(0, 0, 8))
    chaos(EpochBegan(0, 1, 16))


def test_a_full_disk_costs_two_snapshots(tmp_path: Path) -> None:
    chaos = chaos_of(Action.DISK_FULL, step=5)
    folder = FaultyFolder(LocalFolder(tmp_path), chaos)
    chaos(EpochBegan(0, 0, 0))
    write(folder, unfinished(4))
    chaos(StepDone(0, 5, 0))
    for step in (5, 5, 6):
        with pytest.raises(OSError) as raised:  # noqa: PT011 - the number is looked at below
            write(folder, unfinished(step))
        assert raised.value.errno == errno.ENOSPC
        assert (tmp_path / unfinished(step)).read_bytes() == b"1234"
    write(folder, unfinished(7))
    assert (tmp_path / unfinished(7)).read_bytes() == b"12345678"


def test_a_writer_is_struck_in_the_middle_of_its_file(tmp_path: Path) -> None:
    chaos = chaos_of(Action.EXCEPTION, Phase.SNAPSHOT, step=10)
    folder = FaultyFolder(LocalFolder(tmp_path), chaos)
    chaos(EpochBegan(0, 0, 0))
    write(folder, unfinished(5))
    write(folder, ".probe-1")
    with pytest.raises(RuntimeError):
        write(folder, unfinished(10))
    assert (tmp_path / unfinished(10)).read_bytes() == b"1234"
    write(folder, unfinished(10))


def test_nothing_strikes_a_job_without_chaos(tmp_path: Path) -> None:
    chaos = Chaos((), 2)
    chaos(FitBegan(0, 0, 0, False))
    chaos(EpochBegan(0, 0, 0))
    chaos(StepDone(0, 1, 0, is_last=True))
    chaos(FitEnded(0, 1))
    write(FaultyFolder(LocalFolder(tmp_path), chaos), unfinished(1))
