"""MPICH's PMI-1 line protocol: a pure state machine (lines in, lines out), and a service that puts it on a socket.

MPICH asks its process manager for its rank, the world size and a key-value store in which ranks leave their addresses
for each other. Whoever started a rank (its agent) answers over a socket that the
rank inherited; this file knows the words. Source: the PMI-1 description in MPICH's ``doc/notes/pmi``.

The store is exchanged at barriers only, which is all that MPICH needs: keys that a rank puts are visible to the others
after the next barrier. So between hosts one message per barrier suffices, whatever the number of keys.

    rank 0   put k0 ─► barrier_in ·······► barrier_out ─► get k1
    rank 1   put k1 ──────► barrier_in ··► barrier_out ─► get k0
                             Fence: k0 + k1 ┘
"""

import asyncio
import socket
from collections.abc import Callable, Mapping

from paceline.cluster.launched import WorkerIdentity
from paceline.wire.frames import LineSplitter

MAX_LINE_BYTES = 4096
_MAX_KEY_LENGTH = 64
_MAX_VALUE_LENGTH = 1024


def store_name(job_id: str, generation: int) -> str:
    """How the key-value store of a generation is called.

    MPICH names its shared-memory segments after it, so it must be unique per job and generation: with a constant one,
    `MPI_Init` meets stale segments and dies.
    """
    return f"paceline_{job_id}_{generation}"


class Fence:
    """Collects what every rank of a group puts before a barrier, and says when all have arrived. Reusable.

    >>> fence = Fence(2)
    >>> fence.arrive(0, {"a": "1"})
    >>> fence.arrive(1, {"b": "2"})
    {'a': '1', 'b': '2'}
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._arrived: dict[int, dict[str, str]] = {}

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that have not yet arrived at the current barrier."""
        return tuple(rank for rank in range(self._size) if rank not in self._arrived)

    def arrive(self, rank: int, keys: Mapping[str, str]) -> dict[str, str] | None:
        """`rank` enters the barrier with the `keys` it has put; the union of all when it is the last, else None.

        Raises:
            ValueError: `rank` is already waiting in this barrier, or is not of this group.
        """
        if rank in self._arrived or not 0 <= rank < self._size:
            raise ValueError(
                f"rank {rank} cannot enter a barrier of {self._size} ranks in which {sorted(self._arrived)} wait"
            )
        self._arrived[rank] = dict(keys)
        if self.missing:
            return None
        union = {key: value for keys in self._arrived.values() for key, value in keys.items()}
        self._arrived = {}
        return union


class PmiSession:
    """One rank's conversation with its process manager.

    Feed it each line with `answer` and send back what it returns. When `waiting` is true the rank is in a barrier:
    pass `pending` on (to a `Fence`), and send what `release` returns once all ranks have arrived.

    Args:
        rank: The rank that speaks.
        size: Number of ranks.
        store_name: Name of the key-value store: `store_name`.
    """

    def __init__(self, *, rank: int, size: int, store_name: str) -> None:
        self._rank = rank
        self._size = size
        self._store_name = store_name
        self._visible: dict[str, str] = {}
        self.pending: dict[str, str] = {}
        self.waiting = False
        self.finished = False

    def answer(self, line: str) -> str | None:
        """The reply to one request `line`, both ending in a newline; None when the rank now waits in a barrier.

        Raises:
            ValueError: the line is no PMI-1 request that MPICH sends.
        """
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        command = words.get("cmd", "")
        match command:
            case "initack":
                return f"cmd=initack\ncmd=set size={self._size}\ncmd=set rank={self._rank}\ncmd=set debug=0\n"
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
            case "get_maxes":
                return f"cmd=maxes rc=0 kvsname_max=256 keylen_max={_MAX_KEY_LENGTH} vallen_max={_MAX_VALUE_LENGTH}\n"
            case "get_appnum":
                return "cmd=appnum rc=0 appnum=0\n"
            case "get_my_kvsname":
                return f"cmd=my_kvsname rc=0 kvsname={self._store_name}\n"
            case "get_universe_size":
                return "cmd=universe_size rc=0 size=-1\n"
            case "put":
                self.pending[words["key"]] = words["value"]
                return "cmd=put_result rc=0 msg=success\n"
            case "get":
                value = self._visible.get(words["key"], self.pending.get(words["key"]))
                if value is None:
                    return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
                return f"cmd=get_result rc=0 msg=success value={value}\n"
            case "barrier_in":
                self.waiting = True
                return None
            case "finalize":
                self.finished = True
                return "cmd=finalize_ack rc=0\n"
            case _:
                raise ValueError(f"not a PMI-1 request: {line!r}")

    def release(self, keys: Mapping[str, str]) -> str:
        """All ranks have arrived with `keys` in total: the line that lets this rank out of the barrier."""
        assert self.waiting
        self._visible.update(keys)
        self.pending = {}
        self.waiting = False
        return "cmd=barrier_out rc=0\n"


class PmiService:
    """Answers one rank's requests on its socket, in the agent; barriers go through the whole job.

    Not in the worker itself: `MPI_Init` holds the interpreter lock of the rank that asks.

    Args:
        loop: The loop.
        connection: This process's end of the socket that the rank hands to MPI; owned from now on.
        identity: The rank's.
        on_barrier: Called with the rank's new keys when it enters a barrier; answer with `release`.
        on_fault: Called with the reason when the rank says something that is not PMI-1.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        identity: WorkerIdentity,
        on_barrier: Callable[[dict[str, str]], None],
        on_fault: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._session = PmiSession(
            rank=identity.rank,
            size=identity.world_size,
            store_name=store_name(identity.job_id, identity.generation),
        )
        self._on_barrier = on_barrier
        self._on_fault = on_fault
        self._lines = LineSplitter(MAX_LINE_BYTES)
        self._spoke = False
        self._open = True

    @property
    def finished(self) -> bool:
        """Whether MPI was used and has been shut down."""
        return self._session.finished

    @property
    def is_needed(self) -> bool:
        """Whether MPI was started and may still ask something."""
        return self._open and self._spoke and not self._session.finished

    def start(self) -> None:
        """Begins to answer."""
        self._connection.setblocking(False)
        self._loop.add_reader(self._connection, self._read)

    def release(self, keys: Mapping[str, str]) -> None:
        """All ranks are in the barrier, with these keys in total."""
        if self._session.waiting:
            self._reply(self._session.release(keys))

    def close(self) -> None:
        """Ends the conversation."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._connection)
            self._connection.close()

    def _read(self) -> None:
        try:
            data = self._connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._spoke = True
        try:
            for line in self._lines.feed(data):
                self._answer(line.decode("ascii"))
        except (ValueError, KeyError) as fault:
            self.close()
            self._on_fault(f"sent something on its PMI socket that MPICH does not send: {fault}")

    def _answer(self, line: str) -> None:
        reply = self._session.answer(line)
        if reply is not None:
            self._reply(reply)
        elif self._session.waiting:
            self._on_barrier(dict(self._session.pending))

    def _reply(self, text: str) -> None:
        # The lines are short and each is awaited by its rank: a socket's buffer always has room for one.
        try:
            self._connection.sendall(text.encode("ascii"))
        except OSError:
            self.close()
