"""WHAT happened: typed events, the bus that carries them, and `subscribe` for sinks of the user's own.

paceline.events.subscribe(sink)      # a function that takes an event; see docs/events.md
"""

from typing import TYPE_CHECKING, Any

from paceline.events.worker_events import (
    BatchDone,
    EpochBegan,
    EpochEnded,
    Event,
    FaultInjected,
    FitBegan,
    FitEnded,
    Preempted,
    RecordsFailed,
    SharesChanged,
    SnapshotFailed,
    SnapshotTaken,
    StepDone,
    StepsAwaited,
    StepsTimed,
    StragglerFound,
    TimeSpent,
    TraceBegan,
    TrainingResumed,
    WorkerStuck,
)

if TYPE_CHECKING:
    from paceline.events.bus import subscribe as subscribe

__all__ = [
    "BatchDone",
    "EpochBegan",
    "EpochEnded",
    "Event",
    "FaultInjected",
    "FitBegan",
    "FitEnded",
    "Preempted",
    "RecordsFailed",
    "SharesChanged",
    "SnapshotFailed",
    "SnapshotTaken",
    "StepDone",
    "StepsAwaited",
    "StepsTimed",
    "StragglerFound",
    "TimeSpent",
    "TraceBegan",
    "TrainingResumed",
    "WorkerStuck",
    "subscribe",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name != "subscribe":
            raise AttributeError(f"module 'paceline.events' has no attribute {name!r}; it has {', '.join(__all__)}")
        from paceline.events.bus import subscribe  # not for agents, which start quickly

        return subscribe
