"""What `paceline status` tells of a job, as records. Values only; `paceline status --json` prints them as they are."""

from paceline.events.head_events import JobAccount
from paceline.events.worker_events import EpochEnded, SnapshotTaken, StepsTimed, StragglerFound
from paceline.wire.codec import Record


class WorkerStatus(Record, frozen=True):
    """A process of the job."""

    process: str
    """Its role, such as ``worker 1``."""
    rank: int | None
    """None: it stands outside of the world."""
    host: str
    pid: int
    state: str = "running"
    """One word or two, such as ``training``."""
    step: int | None = None
    """The last step that it told of, since its start."""


class JobStatus(Record, frozen=True, kw_only=True):
    """A job, at this moment."""

    job_id: str
    program: str
    """What the workers run."""
    state: str
    """One word or two, such as ``training``."""
    seconds: float
    """Since the launcher's start."""
    host: str
    """Where the launcher runs."""
    pid: int
    """The launcher's."""
    generation: int
    num_workers: int
    """How many ranks."""
    workers: tuple[WorkerStatus, ...]
    """All processes of this generation, ranks first."""
    epoch: int | None
    """From 0; None: no epoch has begun."""
    step: int | None
    """Optimizer steps of the whole job; None: none was heard of."""
    steps_per_second: float | None
    """Over the last steps; None: too few were heard of."""
    step_age_seconds: float | None
    """Since the last step."""
    epoch_ended: EpochEnded | None
    """The last one, with its metrics."""
    num_snapshots: int
    """Of this run."""
    snapshot: SnapshotTaken | None
    """The newest of this run."""
    snapshot_age_seconds: float | None
    num_failed_snapshots: int
    """How many shards could not be written."""
    num_restarts: int
    max_restarts: int
    failure: str
    """What ended the generation before this one; empty: nothing."""
    step_times: StepsTimed | None
    """Where the time of a step goes, as the chief said last."""
    straggler: StragglerFound | None
    """Whom the others wait for, as the chief said last in this `fit`."""
    account: JobAccount | None = None
    """Where the time of the job has gone so far."""
