"""What the head of a job sees happen, as typed records. Values only; ``docs/events.md`` lists them."""

from paceline.events.worker_events import Event, OfRank
from paceline.wire.codec import Record


class JobBegan(Event, frozen=True):
    """The hosts are there, and the first workers are about to start."""

    job_id: str
    """The job's random name, as in the folder of its logs."""
    num_workers: int
    """How many ranks; beside parameter servers, how many workers."""
    seed: int
    """The job's."""


class HostJoined(Event, frozen=True):
    """A host takes part in a generation."""

    host: str
    """Its name."""
    generation: int
    """In which."""
    num_workers: int
    """How many ranks it has; beside parameter servers, how many workers."""


class HostLost(Event, frozen=True):
    """A host that took part is lost, with its processes: its agent died, or nothing is heard of it."""

    ranks: tuple[int, ...]
    """Which ran there."""
    host: str
    """Its name."""
    reason: str
    """Completes the sentence "host a …"."""


class ClockMeasured(Event, frozen=True):
    """How far the clock of another host is from the launcher's, by the quickest heartbeat since the last time."""

    host: str
    """Its name."""
    clock_seconds: float
    """The launcher's monotonic clock, when that heartbeat came."""
    offset_seconds: float
    """How far the other host's monotonic clock was ahead; it counts from the start of that machine."""
    error_seconds: float
    """By how much that may be wrong: half of the round trip."""


class GenerationBegan(Event, frozen=True):
    """The workers start, for the first time or again."""

    generation: int
    """From 1."""
    num_workers: int
    """How many ranks."""


class WorkerStarted(OfRank, frozen=True):
    """A process of the job runs."""

    host: str
    """Where."""
    pid: int
    """Its process id there."""
    process: str
    """Its role, such as ``worker 1``; one outside of the world, such as ``ps 0``, has no rank."""


class RanksWaiting(Event, frozen=True):
    """Ranks wait in their first collective for others; again every 10 seconds."""

    waiting: tuple[int, ...]
    """Those that wait."""
    missing: tuple[int, ...]
    """For whom."""
    seconds: float
    """Since the start of the generation."""


class HangFound(Event, frozen=True):
    """No step for ``--hang-timeout`` seconds: ranks are asked where they are, and then the generation is stopped."""

    ranks: tuple[int, ...]
    """Which are asked."""
    seconds: float
    """How long there was no step."""
    who: str
    """The ranks as users read them."""


class StuckFound(Event, frozen=True):
    """A worker beside parameter servers, or such a server, hangs for ``--hang-timeout`` seconds, and is ended."""

    process: str
    """Which, such as ``worker 1``."""
    reason: str
    """Completes the sentence "worker 1 …"."""


class PreemptionBegan(Event, frozen=True):
    """The job was told to stop (SIGTERM, SIGUSR1): all ranks take a last snapshot and exit."""


class LastWorkBegan(Event, frozen=True):
    """All ranks have ended well, and the job waits for what others still have to do."""

    processes: tuple[str, ...]
    """Who: ``evaluator 0``."""
    seconds: float
    """How long the job waits at most."""


class StopBegan(Event, frozen=True):
    """The workers that still run are ended."""

    reason: str
    """Why."""


class RankEnded(OfRank, frozen=True):
    """A process of the job has ended."""

    exit_code: int
    """Below 0: the signal that ended it."""
    exception: str = ""
    """What nobody caught, one line; empty: none is known."""


class GenerationEnded(Event, frozen=True):
    """No worker of the generation runs any more."""

    generation: int
    """Which."""
    step: int | None
    """The last step that was heard of."""
    exit_code: int
    """0: every worker has exited with 0."""
    reason: str
    """What ended it; empty: its scripts came to their end."""
    has_failed: bool = False
    """Whether that was a failure, and nobody's word to stop."""


class Restarted(Event, frozen=True):
    """The job goes on with another generation."""

    generation: int
    """Its number."""
    pause_seconds: float
    """How long until it begins."""


class Recovered(Event, frozen=True):
    """Training goes on after a restart: what the failure has cost."""

    generation: int
    """Which goes on."""
    step: int
    """From where; 0: from the beginning, without a snapshot."""
    num_lost_steps: int
    """How many steps are done again."""
    lost_seconds: float
    """From the end of the generation before to the resumption."""
    reason: str
    """What had ended the generation before."""


class Death(Record, frozen=True):
    """What a failure has cost a job."""

    reason: str
    """What ended the generation."""
    step: int
    """The last step that was heard of."""
    num_steps: int
    """How many steps were done again."""
    seconds: dict[str, float]
    """By part: ``detection`` (from the last step until it was noticed), ``stopping`` (the others), ``restart`` (up to
    `fit`), ``restoring``, ``tracing`` (up to the first step), ``steps again``."""


class JobAccount(Event, frozen=True):
    """Where the time of the job has gone; just before `JobEnded`."""

    seconds: float
    """Since the launcher's start: the sum of all parts, and of those of all deaths."""
    parts: dict[str, float]
    """Seconds by part: ``start`` (up to the first `fit`), what `TimeSpent` has, ``steps`` (what that does not tell
    apart), ``restoring``, ``script`` (out of `fit`), ``end``."""
    deaths: tuple[Death, ...]
    """Each with `reason`, `step`, `num_steps` (done again), and `seconds` by part."""


class JobEnded(Event, frozen=True):
    """The job is over."""

    exit_code: int
    """Of the launcher."""
    seconds: float
    """Since the launcher's start."""
    num_steps: int
    """Optimizer steps that this run has done, repeated ones not counted."""
    steps_per_second: float | None
    """From the first step to the last; null: fewer than two steps were heard of."""
    num_restarts: int
    """How many were made."""
    num_repeated_steps: int
    """Steps that were done again after restarts."""
    lost_seconds: float
    """From the last step before each failure until that step was reached again."""
    goodput: float
    """The share of `seconds` that was not lost, from 0 to 1."""
    start_seconds: float | None = None
    """From the launcher's start to the first step; null: none was heard of."""


class Notice(Event, frozen=True):
    """What the launcher says to the user besides, such as the report of a failure."""

    lines: tuple[str, ...]
    """As they stand on the screen."""
    is_for_all_hosts: bool = False
    """Whether the users of other nodes (``--nnodes``) read it, too."""


FromHead = (
    JobBegan
    | HostJoined
    | HostLost
    | ClockMeasured
    | GenerationBegan
    | WorkerStarted
    | RanksWaiting
    | HangFound
    | StuckFound
    | PreemptionBegan
    | LastWorkBegan
    | StopBegan
    | RankEnded
    | GenerationEnded
    | Restarted
    | Recovered
    | JobAccount
    | JobEnded
    | Notice
)
"""What the head of the job emits."""
