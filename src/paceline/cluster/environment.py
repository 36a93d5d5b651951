"""The names of the environment variables that a launched worker is told, in one place.

The launcher writes them for each worker, the bootstrap and the cluster readers read them; nobody else spells them.
"""

TF_CONFIG = "TF_CONFIG"
"""TensorFlow's own contract: JSON with ``cluster`` and ``task``."""

RANK = "PACELINE_RANK"
WORLD_SIZE = "PACELINE_WORLD_SIZE"
LOCAL_RANK = "PACELINE_LOCAL_RANK"
LOCAL_WORLD_SIZE = "PACELINE_LOCAL_WORLD_SIZE"
GENERATION = "PACELINE_GENERATION"

JOB_ID = "PACELINE_JOB_ID"
"""Random hexadecimal name of the job, the same on all hosts."""

AGENT_ID = "PACELINE_AGENT_ID"
"""Random hexadecimal name of a host's part of the job; marks every process of it, also those that the script starts."""

JOB_DIRECTORY = "PACELINE_JOB_DIRECTORY"
"""Where the ranks of a host keep files for each other; made when first needed, removed with the job."""

SEED = "PACELINE_SEED"
"""Integer that seeds Python, NumPy and TensorFlow alike on every rank before the script runs."""

CPUS = "PACELINE_CPUS"
"""Comma-separated core numbers that this worker binds itself to; absent: no binding."""

DROP_IN = "PACELINE_DROP_IN"
"""``1``: Paceline's classes serve `tf.distribute`'s names, and a script without a strategy gets one; ``0``: not."""

AGENT_FD = "PACELINE_AGENT_FD"
"""Inherited socket to the agent (JSON lines, see ``rendezvous/channel.py``)."""

PMI_FD = "PACELINE_PMI_FD"
"""Inherited socket on which the agent speaks MPICH's PMI-1 protocol (see ``rendezvous/pmi.py``)."""

FREE_SHARED_MEMORY = "PACELINE_FREE_SHARED_MEMORY"
"""Free bytes of `/dev/shm` before the first rank of this host mapped any: what all of them decide by."""

STANDBY = "PACELINE_STANDBY"
"""``1``: this process imports what a worker needs and waits to be one (see ``bootstrap/standby.py``)."""

START_TIMEOUT = "PACELINE_START_TIMEOUT"
"""Seconds that a process started by hand waits for its peers (300 by default)."""

SECRET_FILE = "PACELINE_SECRET_FILE"
"""File with the job's shared secret; without it a job started by hand is keyed by its cluster description."""

COMMUNICATION = "PACELINE_COMMUNICATION"
"""``mpi``, ``ring`` or ``nccl``: what carries the ranks' numbers to each other (chosen by Paceline when absent)."""

STRICT = "PACELINE_STRICT"
"""``1``: callbacks that disagree over ranks stop the job and are named; else what one decides holds for all."""

ALLOW_MISMATCH = "PACELINE_ALLOW_MISMATCH"
"""``1``: ranks with different versions may form a group, by hand."""

NNODES = "PACELINE_NNODES"
"""How many hosts the job has; same as ``--nnodes``."""

NODE_RANK = "PACELINE_NODE_RANK"
"""This host's number, from 0; same as ``--node-rank``."""

RENDEZVOUS = "PACELINE_RENDEZVOUS"
"""``host:port`` at which host 0 meets the others; same as ``--rendezvous``."""

NETWORK_INTERFACE = "PACELINE_NETWORK_INTERFACE"
"""Name of the network interface, such as ``eth1``, over which the hosts talk; found by itself when absent."""

REQUIRE_SECRET = "PACELINE_REQUIRE_SECRET"
"""``1``: a job whose secret nobody has set is refused; same as ``--require-secret``."""

SNAPSHOT_DIR = "PACELINE_SNAPSHOT_DIR"
"""Where `fit` keeps snapshots, and goes on from; same as ``--snapshot-dir``. Absent: nowhere."""

SNAPSHOT_EVERY = "PACELINE_SNAPSHOT_EVERY"
"""``100`` (steps) or ``30s`` between snapshots; same as ``--snapshot-every``."""

SNAPSHOT_KEEP = "PACELINE_SNAPSHOT_KEEP"
"""How many snapshots stay; same as ``--snapshot-keep``."""

CHAOS = "PACELINE_CHAOS"
"""Faults that strike this job on purpose; same as ``--chaos``."""

HANG_TIMEOUT = "PACELINE_HANG_TIMEOUT"
"""Seconds without a step after which a worker counts as stuck; same as ``--hang-timeout``."""
