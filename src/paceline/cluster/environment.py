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
"""Random hexadecimal name of the job; marks every process of it, also those that the script starts."""

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
