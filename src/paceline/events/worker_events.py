"""What happens in a worker, as typed records. Values only; ``docs/events.md`` lists them."""

from paceline.wire.codec import TaggedRecord


class Event(TaggedRecord, frozen=True):
    """Something that has happened.

        end = paceline.events.subscribe(print)      # StepDone(rank=0, step=1, epoch=0, …), and all others
        model.fit(dataset, epochs=3)
        end()

    ``docs/events.md`` lists all kinds with their fields.
    """


class OfRank(Event, frozen=True):
    """Something that has happened in a worker, which emits it; the launcher hears of it over the worker's socket."""

    rank: int
    """The number by which the launcher knows the process."""


class FitBegan(OfRank, frozen=True):
    """`fit` was called."""

    call: int
    """Which call of `fit` in the script, from 0."""
    step: int
    """Optimizer steps of the job so far."""
    is_repeated: bool
    """Whether this call had ended before a restart: nothing is trained again, and no other event of it follows."""


class TraceBegan(OfRank, frozen=True):
    """TensorFlow traces and compiles the step that comes next, which takes as long as it takes."""


class TrainingResumed(OfRank, frozen=True):
    """A later generation, or a new run of the job, resumes: from a snapshot, or after a restart from the beginning."""

    step: int
    """Optimizer steps of the whole job that are done."""
    epoch: int
    """From 0."""
    generation: int
    """Which resumes."""
    snapshot: str
    """The name of the snapshot; empty: there is none."""


class EpochBegan(OfRank, frozen=True):
    """An epoch of `fit` begins, or is resumed."""

    epoch: int
    """From 0."""
    step: int
    """Optimizer steps of the job so far."""


class StepDone(OfRank, frozen=True):
    """Optimizer steps are done: one, or those of one execution (`steps_per_execution`)."""

    step: int
    """Optimizer steps of the whole job, over all its fits."""
    epoch: int
    """From 0."""
    num_steps: int = 1
    """How many steps these are."""
    seconds: float = 0.0
    """Since the step before, or since the epoch began: with the time for data and callbacks."""
    is_last: bool = False
    """Whether the `fit` is known to have no more steps."""


class BatchDone(OfRank, frozen=True):
    """A batch of a validation, an evaluation or a prediction within a `fit` is done."""

    step: int
    """Optimizer steps of the job so far."""
    epoch: int
    """From 0."""
    is_validation: bool
    """Whether it is of the validation of this `fit`; else a callback evaluates or predicts."""


class StepsAwaited(OfRank, frozen=True):
    """The chief waits for steps of workers beside parameter servers; again every second."""


class WorkerStuck(OfRank, frozen=True):
    """A worker beside parameter servers has made no step for ``--hang-timeout`` seconds; emitted by the chief."""

    server: str
    """The process, such as ``worker 1``."""
    seconds: float
    """For how long."""


class EpochEnded(OfRank, frozen=True):
    """An epoch of `fit` is over, its validation included."""

    epoch: int
    """From 0."""
    step: int
    """Optimizer steps of the job so far."""
    seconds: float
    """How long it took, or since it was resumed."""
    logs: dict[str, float | None]
    """The metrics that callbacks get, by name; null in the file: not a finite number."""


class FitEnded(OfRank, frozen=True):
    """`fit` returns to the script, or raises: no step is due."""

    step: int
    """Optimizer steps of the job so far."""
    has_failed: bool = False
    """Whether it raises."""


class StepsTimed(OfRank, frozen=True):
    """Where the time of steps went; emitted by the chief at the end of an epoch, and of a whole `fit`."""

    num_steps: int
    """Of how many steps."""
    step_seconds: float
    """How long one took."""
    shares: dict[str, float]
    """What a step was spent with, by word, from 0 to 1: such as ``input``, ``compute``, ``waiting``."""
    waits_for: int | None
    """The rank that the others wait for, as ``waiting`` says; null: for each other."""
    is_whole_fit: bool
    """Whether these are all steps of the `fit`, which is over."""
    text: str
    """The same as the chief's line."""


TRACING, VALIDATION = "tracing", "validation"
"""Words for what is no part of a step."""


class TimeSpent(OfRank, frozen=True):
    """Where the time of this `fit` has gone so far; emitted by the chief, each second while it makes steps."""

    seconds: dict[str, float]
    """Since its beginning, by word: those of `StepsTimed`, ``tracing`` (with all that comes before the first step) and
    ``validation``."""


class StragglerFound(OfRank, frozen=True):
    """The others wait for one worker; emitted by the chief, in one of its threads."""

    straggler: int
    """The rank that they wait for."""
    ratio: float
    """How many times as long as the median of the others it needs."""
    share: float
    """For which part of a step they wait for it, from 0 to 1."""
    reason: str
    """What the kernel says of it; empty: nothing."""
    text: str
    """The same as the chief's line."""


class SharesChanged(OfRank, frozen=True):
    """Under ``--shares auto`` workers get other rows of each batch; emitted by the chief, in one of its threads."""

    rows: tuple[int, ...]
    """Of a full batch, by rank."""
    text: str
    """The same as the chief's line."""


class SnapshotTaken(OfRank, frozen=True):
    """A snapshot is whole, on the disk; emitted by the chief, from the thread that writes."""

    step: int
    """Of which step."""
    name: str
    """Of its folder."""
    bytes: int
    """What it takes on the disk."""


class SnapshotFailed(OfRank, frozen=True):
    """This rank could not write its shard of a snapshot."""

    step: int
    """Of which step."""
    reason: str
    """The error."""


class RecordsFailed(OfRank, frozen=True):
    """This rank's steps are not kept for ``--observe`` any more; emitted by one of its threads."""

    reason: str
    """The error."""


class Preempted(OfRank, frozen=True):
    """All ranks stop after this step; a last snapshot is being written."""

    step: int
    """Optimizer steps of the job so far."""


class FaultInjected(OfRank, frozen=True):
    """``--chaos`` injects a fault into this worker now, or into a process that serves it."""

    fault: str
    """Which, as ``--chaos`` takes it."""
    server: str = ""
    """The process that serves it, such as ``ps 0``; empty: this worker."""


FromWorker = (
    FitBegan
    | TraceBegan
    | TrainingResumed
    | EpochBegan
    | StepDone
    | BatchDone
    | StepsAwaited
    | WorkerStuck
    | EpochEnded
    | FitEnded
    | StepsTimed
    | TimeSpent
    | StragglerFound
    | SharesChanged
    | SnapshotTaken
    | SnapshotFailed
    | RecordsFailed
    | Preempted
    | FaultInjected
)
"""What workers emit, and their agents hear."""
