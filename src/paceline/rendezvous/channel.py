"""The connection between a worker and its agent: JSON objects, one per line, over an inherited socket.

The worker speaks, the agent listens, and asks one question. Nothing here goes over the network. A worker that was
started by hand has first said `Attach` to the agent that it has started (`attaching.py`).

    worker                                     agent
      │ attach ──►    ◄── attached or refused    │ by hand only: all ranks are there
      │ joining   MPI is about to start          │ from now on the others wait for this rank
      │ joined    MPI stands                     │
      │ failed    an exception nobody caught     │ ends the group, prints this traceback last
      │ keeps_snapshots  from the first `fit`    │ told to stop, it leaves by itself, after a last snapshot
      │ events    a step is done, … (``events``) │ passed on; hang detection counts steps
      │ whereabouts  its answer to a question     │ asked of ranks that make no step
      │ finishing the script ended, exit barrier │
      │ left      it owes the group nothing more │
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Literal

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import Address
from paceline.events.worker_events import FromWorker
from paceline.wire.codec import Decoder, TaggedRecord
from paceline.wire.frames import line

QUESTION = b"?"
"""What the agent sends to be told a worker's `Whereabouts`."""

ALL_RANKS = "all ranks"
"""The name of the group of the whole job."""

MemoryShortage = Literal["yes", "perhaps", "no", "unknown"]
"""Whether the kernel has ended a process because memory ran out: this worker or one beside it; some process of the
host; none; it does not say.
"""


class Attach(TaggedRecord, frozen=True):
    """Everything that an agent must know of its worker's job. `key` is the job's, `seed` what this rank proposes."""

    worker_pid: int
    rank: int
    addresses: tuple[Address, ...]
    """In rank order."""
    has_chief: bool
    """Whether TF_CONFIG calls rank 0 the chief, and not a worker."""
    cluster_digest: str
    versions: dict[str, str]
    """Name and version of each program that all ranks must share."""
    hostname: str
    """Ranks with equal ones are on one host."""
    seed: int
    start_timeout_seconds: float
    hang_timeout_seconds: float | None
    allow_mismatch: bool
    key: bytes


class Attached(TaggedRecord, frozen=True):
    """All ranks are there."""

    identity: WorkerIdentity


class Joining(TaggedRecord, frozen=True):
    """The worker begins to form the group."""


class Joined(TaggedRecord, frozen=True):
    """The group stands for this worker."""


class Failed(TaggedRecord, frozen=True):
    """The script raised an exception that nobody caught."""

    exception: str
    """Its class and message, one line."""
    traceback: str
    """As Python prints it, without Paceline's own frames; empty for errors that explain themselves."""
    exit_code: int

    @property
    def first_line(self) -> str:
        """Of `exception`, which may have more."""
        return self.exception.partition("\n")[0]


class KeepsSnapshots(TaggedRecord, frozen=True):
    """From now on SIGTERM and SIGUSR1 make this worker leave by itself, after a last snapshot. Scripts may ask for
    snapshots that the launcher was not told of.
    """


class Stopped(TaggedRecord, frozen=True):
    """The kernel holds the worker stopped for too long. Said by its agent in its place."""


class Whereabouts(TaggedRecord, frozen=True):
    """The answer to the agent's question where the worker is, by a thread of its own."""

    entered: dict[str, int]
    """How many collectives of each of its groups it has entered, by the groups' names; `ALL_RANKS` is among them."""
    group: str
    """Whose collective it is in; empty: in none, or in one of TensorFlow's own."""
    inside: str
    """Which one, such as ``all_reduce``, or the message that it waits for; empty: as above."""
    awaited: int | None = None
    """The rank that the message comes from, or must take; None: it waits for no message."""
    line: str = ""
    """Of the script, in which its main thread is; empty: in none."""


class KilledFromOutside(TaggedRecord, frozen=True):
    """A signal ended the worker that nobody of Paceline has sent. Said by its agent in its place, before its end."""

    memory: MemoryShortage


class Finishing(TaggedRecord, frozen=True):
    """The script came to its end; the worker waits for the others before it leaves."""


class Left(TaggedRecord, frozen=True):
    """The worker has left the group in order, and owes it nothing: its end is no death. One that is in the group, and
    ends without this word, fails, whatever its exit code.
    """


Message = (
    Joining
    | Joined
    | Failed
    | KeepsSnapshots
    | Stopped
    | Whereabouts
    | KilledFromOutside
    | Finishing
    | Left
    | FromWorker
)
decode = Decoder[Message](Message)
"""The message of one line."""
decode_attach = Decoder[Attach](Attach)


class AgentLine:
    """The worker's end of the line.

    Args:
        connection: A connected stream socket, usually made from the inherited file descriptor.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._status = os.fstat(connection.fileno())
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Tells the agent; one that is gone is no error here. A longer
        traceback than a line may hold loses its beginning.
        """
        if isinstance(message, Failed):
            message = Failed(message.exception[:10_000], message.traceback[-100_000:], message.exit_code)
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(line(message))

    @property
    def is_open(self) -> bool:
        """Whether the descriptor is still this line's: a script that closes all descriptors closes this one, too, and
        may have opened a file of its own under the number.
        """
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._connection.fileno()), self._status)
        return False

    def answer(self, reply: Callable[[], Message]) -> bool:
        """Sends what `reply` gives whenever the agent asks for `Whereabouts`. Blocks.

        Returns:
            Whether the agent is gone. False: the script has closed the descriptor.
        """
        with contextlib.suppress(OSError):
            while self._connection.recv(len(QUESTION)):
                self.send(reply())
        return self.is_open
