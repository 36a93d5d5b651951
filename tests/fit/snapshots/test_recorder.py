"""What the watcher is told at the end of a `fit`."""

from types import SimpleNamespace
from typing import Any

from paceline.fit.snapshots.recorder import Recorder
from paceline.rendezvous.channel import FitEnded
from paceline.resilience.schedule import Schedule


def test_the_last_snapshot_is_no_step_that_is_missed() -> None:
    """However long the disk takes: with --hang-timeout the job would be ended for it, and again after each restart."""
    happened: list[Any] = []

    def noted(name: str) -> Any:
        return lambda *_, **__: happened.append(name)

    world: Any = SimpleNamespace(rank=0, size=2, tell=happened.append)
    keeper: Any = SimpleNamespace(
        chaos=SimpleNamespace(ended=noted("chaos")),
        keep=noted("keep"),
        finish=noted("finish"),
        free_memory=noted("free"),
    )
    recorder = Recorder(None, keeper, Schedule(3, None), world, fit_call=0, steps_before=0, resumed=None)
    recorder._data = SimpleNamespace(cursor=SimpleNamespace(epoch=1, step=1))  # type: ignore[assignment]
    world.identity = SimpleNamespace(seed=1, generation=1)
    recorder.ended()
    assert happened == ["chaos", FitEnded(), "keep", "finish", "free"]
