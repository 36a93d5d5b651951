"""What the doctor asks a host, and what the host answers, each as one line of JSON.

examination.py ──► ssh ──► host_side.py     AskClock      ──► Clock
                                            AskCondition  ──► Condition
                                            Listen        ──► Listening        (the second host of a pair)
                                            Meet          ──► Met              (the first one)
"""

from paceline.wire.codec import Record, TaggedRecord


class Disk(Record, frozen=True):
    """The disk of a directory that a job writes to; `fault` says why it could not, and is empty where it can."""

    use: str
    path: str
    free_bytes: int
    total_bytes: int
    fault: str


class Port(Record, frozen=True):
    """An address of the host; `fault` says why processes cannot connect there, and is empty where they can."""

    address: str
    fault: str


class Condition(TaggedRecord, frozen=True):
    """What a host has for a job."""

    hostname: str
    versions: dict[str, str]
    lowest_versions: dict[str, str]
    """Of programs for which Paceline asks for one."""
    cores: tuple[int, ...]
    """Those that a process may use; the NUMA nodes are those of these cores."""
    num_all_cores: int
    core_quota: float | None
    """How many cores' worth of time the control groups allow; None: no limit."""
    num_numa_nodes: int
    num_gpus: int
    num_workers: int
    """That the job starts there."""
    load: float
    """Programs that computed or waited for a core, on average over the last minute."""
    kernel_seconds: float
    """Processor time of a fixed piece of work on one core."""
    steal_share: float
    """Of the processor time, what other virtual machines took."""
    memory_free_bytes: int
    memory_bytes: int
    shared_memory_free_bytes: int
    shared_memory_bytes: int
    """Size of ``/dev/shm``; 0: there is none."""
    disks: tuple[Disk, ...]
    ports: tuple[Port, ...]
    num_outgoing_ports: int
    """So many the kernel may give to connections; 0: it does not tell."""

    def reachable_addresses(self) -> tuple[str, ...]:
        """Where others may reach the host: its loopback only if it has nothing else."""
        usable = tuple(port.address for port in self.ports if not port.fault)
        return tuple(address for address in usable if not address.startswith("127.")) or usable


class AskClock(TaggedRecord, frozen=True):
    """What time is it there?"""


class AskCondition(TaggedRecord, frozen=True):
    """What does the host have for a job?"""

    num_workers: int
    """That it starts there; 0: as many as ``--workers auto``."""
    snapshot_dir: str
    """Where snapshots will be; empty: nowhere, or not on a disk."""


class Listen(TaggedRecord, frozen=True):
    """Open a port for one peer that knows `key`, and send back what it sends."""

    key: bytes


class Meet(TaggedRecord, frozen=True):
    """Measure the network to the host that listens."""

    addresses: tuple[str, ...]
    port: int
    key: bytes


class Clock(TaggedRecord, frozen=True):
    """The host's time, in seconds since 1970."""

    seconds: float


class Listening(TaggedRecord, frozen=True):
    """The port that was opened."""

    port: int


class Met(TaggedRecord, frozen=True):
    """What the network between two hosts does in both directions at once, or why there is no connection."""

    round_trip_seconds: float = 0.0
    bytes_per_second: float = 0.0
    fault: str = ""


Question = AskClock | AskCondition | Listen | Meet
Answer = Clock | Condition | Listening | Met
