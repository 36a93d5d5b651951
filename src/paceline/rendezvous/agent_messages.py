"""The messages between the head of a job and the other agents. Values only.

head                                      agent
  │ Assignment ──►                          │  over ssh only: what to run; other agents know it
  │                        ◄── Here         │  this host, and what must be alike on all; or Unfit
  │ Refused ──►                             │  the head will not have it, or the job does not start
  │ Waiting ──►                             │  repeated, where workers were started by hand: which ranks are missing
  │ Look ──►               ◄── Seen         │  which addresses of another host are reached from this one
  │ Begin ──►              ◄── Started      │  a generation: the ranks of this host
  │     ◄── Wrote, Spoke, Garbled, Complaint, WorkerEnded, Fence, Interrupt
  │ Release, Replace, Terminate, Kill ──►   │
  │ Examine ──►            ◄── Examined     │  of workers that make no step
  │ Finish ──►             ◄── Finished     │  nothing of the generation is left
  │ FindSnapshot ──►  ◄── SnapshotFound     │  the newest snapshot that this host can read
  │ Tell ──►                                │  words for the user of that host
  │ Over ──►                                │  the job's end and its exit code
  │ Heartbeat ──►          ◄── Heartbeat    │  all the time
"""

import signal
from enum import Enum

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import Address, Role
from paceline.errors import EXIT_CONFIGURATION
from paceline.rendezvous import channel
from paceline.wire.codec import Decoder, Record, TaggedRecord


class Interface(Record, frozen=True):
    """A network interface of a host and one address of it."""

    name: str
    address: str


class HostFacts(Record, frozen=True):
    """What an agent says about its host."""

    hostname: str
    machine_id: str
    """Agents with equal ones are on one machine (and share memory and cores)."""
    pid: int
    node_rank: int | None
    """The place that the user or a scheduler gave it; None: the head knows. By hand, its worker's rank."""
    num_nodes: int | None
    num_workers: int
    versions: dict[str, str]
    script: str
    """Name and hash."""
    arguments: tuple[str, ...]
    ports: tuple[int, ...]
    """Free ones, one for each process that may run there."""
    interfaces: tuple[Interface, ...]
    """Where peers may reach it, the likeliest first."""
    probe_port: int
    """Where it answers those who look for it."""
    kept_seed: int | None = None
    """Of the snapshots that are there already; None: none, or nobody has looked."""
    gpus: tuple[str, ...] = ()
    """Those for its workers, as CUDA_VISIBLE_DEVICES names them."""
    num_ps: int = 0
    """How many parameter servers the job has, as this host was told."""
    num_data_workers: int = 0
    """The same of data workers."""
    cluster_digest: str = ""
    """By hand, of the cluster that TF_CONFIG describes."""


class Begin(TaggedRecord, frozen=True):
    """Start the processes of a generation."""

    identities: tuple[WorkerIdentity, ...]
    cluster: dict[str, tuple[Address, ...]]
    """By role, the addresses of all processes of the job."""
    interface: str
    """Which carries MPI; empty: the only host, or whichever MPI takes."""
    environment: dict[str, str]
    """That the head decides for this generation."""


class Assignment(TaggedRecord, frozen=True):
    """What an agent that was started over ssh must run."""

    num_workers: int
    script: str
    arguments: tuple[str, ...]
    is_module: bool
    directory: str
    environment: dict[str, str]
    """Variables that go over those which the host's own login sets."""
    options: dict[str, str]
    """The head's values of the options that hosts and workers use, as variables; the host's own say nothing."""
    key: bytes
    """The job's."""
    roles: tuple[Role, ...]
    """Of the processes that run beside the ranks on the first host, which may be this one."""


class Here(TaggedRecord, frozen=True):
    """The agent stands. With `seconds_left` it waits no longer; its user may permit other versions."""

    facts: HostFacts
    seconds_left: float | None = None
    allow_mismatch: bool = False


class Unfit(TaggedRecord, frozen=True):
    """The agent cannot do what it was asked to; `reason` is for the user."""

    reason: str


class Refused(TaggedRecord, frozen=True):
    """The other end will not have this one; `message` is a sentence for its user, `exit_code` its process's."""

    message: str
    exit_code: int = EXIT_CONFIGURATION


class Missing(Record, frozen=True):
    """A process that has not joined, and why, as far as is known."""

    name: str
    address: str
    reason: str


class Waiting(TaggedRecord, frozen=True):
    """Not all are there; `missing` names the first of `num_missing`, `note` may be empty."""

    missing: tuple[Missing, ...]
    num_missing: int
    note: str
    seconds_left: float


class Look(TaggedRecord, frozen=True):
    """Try to reach the agent with this `hostname` and `pid` at each of `addresses`."""

    hostname: str
    pid: int
    addresses: tuple[Address, ...]
    key: bytes


class Seen(TaggedRecord, frozen=True):
    """For each of the addresses why it was not reached; empty: it was."""

    reasons: tuple[str, ...]


class Started(TaggedRecord, frozen=True):
    """The process of a rank runs, for the first time or again."""

    rank: int
    pid: int


class Stream(Enum):
    """Which of a worker's two streams."""

    OUT = "stdout"
    ERR = "stderr"


class Wrote(TaggedRecord, frozen=True):
    """A worker, or a process it started, wrote; no `data`: the stream has ended."""

    rank: int
    stream: Stream
    data: bytes


class Spoke(TaggedRecord, frozen=True):
    """A worker sent a message."""

    rank: int
    message: channel.Message


class Garbled(TaggedRecord, frozen=True):
    """A worker sent something else than a message."""

    rank: int
    fault: str


class Complaint(TaggedRecord, frozen=True):
    """What the agent could not do for its workers; the job goes on. `text` is for the user."""

    text: str


class WorkerEnded(TaggedRecord, frozen=True):
    """A worker's process ended, all that it had said and written has been passed on."""

    rank: int
    exit_code: int
    """As `subprocess` tells it, below 0 for a signal."""
    last_words: tuple[str, ...] = ()
    """The last lines of its stderr, where that is shown on its own host."""


class Fence(TaggedRecord, frozen=True):
    """A rank entered a barrier of MPI's key exchange, with the keys that it has put."""

    rank: int
    keys: dict[str, str]


class Release(TaggedRecord, frozen=True):
    """All ranks are in that barrier, with these keys in total; many keys come in several messages."""

    keys: dict[str, str]
    is_last: bool


class Replace(TaggedRecord, frozen=True):
    """Start the process of this rank again, which has ended; nothing is left of the one before."""

    rank: int


class Terminate(TaggedRecord, frozen=True):
    """SIGTERM to these workers. `why` completes "rank 1 …", for the users of those that were started by hand."""

    ranks: tuple[int, ...]
    why: str = ""


class Examine(TaggedRecord, frozen=True):
    """Have the workers of these ranks tell where they are, and if not `quietly`, write their stacks and their state."""

    ranks: tuple[int, ...]
    quietly: bool = False


class Examined(TaggedRecord, frozen=True):
    """What the kernel says of a worker's process, one line."""

    rank: int
    state: str


class Kill(TaggedRecord, frozen=True):
    """SIGKILL to every process of the generation, also those that scripts started."""


class Finish(TaggedRecord, frozen=True):
    """End the generation: kill and remove what is left of it."""


class Finished(TaggedRecord, frozen=True):
    """Nothing of the generation is left."""


class FindSnapshot(TaggedRecord, frozen=True):
    """Which snapshot in `directory` would a new run continue from?"""

    directory: str


class SnapshotFound(TaggedRecord, frozen=True):
    """The name of the newest snapshot that can be read; empty: none can."""

    name: str


class Interrupt(TaggedRecord, frozen=True):
    """This agent was told to stop: the whole job should."""

    signal: signal.Signals


class Tell(TaggedRecord, frozen=True):
    """Words for the user of the agent's host."""

    lines: tuple[str, ...]


class Over(TaggedRecord, frozen=True):
    """The job has ended."""

    exit_code: int


class Heartbeat(TaggedRecord, frozen=True):
    """Still there. It says what time it is here, as `paceline.rendezvous.clocks` wants to know."""

    sent_ns: int = 0
    """Nanoseconds of the sender's monotonic clock."""
    echo_ns: int = 0
    """`sent_ns` of the last one that has come from the other end; 0: none has."""
    held_ns: int = 0
    """How long ago that came."""


Report = Started | Wrote | Spoke | Garbled | Complaint | Examined | Fence | WorkerEnded | Interrupt
"""What the head hears of the workers of a host while a generation runs."""
Order = Release | Replace | Terminate | Examine | Kill
"""What it asks of them."""
Preparation = Assignment | Here | Unfit | Refused | Waiting | Look | Seen | FindSnapshot | SnapshotFound
Message = Report | Order | Preparation | Begin | Finish | Finished | Tell | Over | Heartbeat
decode = Decoder[Message](Message)
"""The message of one body."""
