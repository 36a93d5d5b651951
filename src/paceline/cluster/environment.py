"""The names of Paceline's environment variables, in one place; nobody else spells them.

Those of options stand in their table (`job_options.py`). What begins with "Told to a worker" the launcher writes for
each worker; users set the others. The text below each name is its entry in `docs/reference.md`.
"""

TF_CONFIG = "TF_CONFIG"
"""The cluster and the task of this process, in TensorFlow's JSON format with ``cluster`` and ``task``."""

NO_COLOR = "NO_COLOR"
"""Not empty: no colours in the lines of a job, nor in those of `paceline doctor`."""

FORCE_COLOR = "FORCE_COLOR"
"""Not empty: colours also where there is no terminal, such as in CI; ``NO_COLOR`` comes first."""

LIVE_LINE = "PACELINE_LIVE_LINE"
"""Not empty: who reads the lines of a job is no terminal, but shows colours, and what follows a carriage return in
place of the row. So progress bars are live there, too. `paceline.launch` sets it in a notebook."""

TASK = "PACELINE_TASK"
"""Told to a worker: its role and its number in that role, such as ``worker 1`` or ``ps 0``."""

RANK = "PACELINE_RANK"
"""Told to a worker: its number in the whole job, from 0."""

WORLD_SIZE = "PACELINE_WORLD_SIZE"
"""Told to a worker: how many workers the whole job has."""

LOCAL_RANK = "PACELINE_LOCAL_RANK"
"""Told to a worker: its number on its host, from 0."""

LOCAL_WORLD_SIZE = "PACELINE_LOCAL_WORLD_SIZE"
"""Told to a worker: how many workers its host has."""

GENERATION = "PACELINE_GENERATION"
"""Told to a worker: the number of its generation, from 1; each restart begins the next."""

JOB_ID = "PACELINE_JOB_ID"
"""Told to a worker: random hexadecimal name of the job, the same on all hosts."""

AGENT_ID = "PACELINE_AGENT_ID"
"""Told to a worker: random hexadecimal name of the agent of its host; marks every process of the job on this host,
also those that the script starts."""

JOB_DIRECTORY = "PACELINE_JOB_DIRECTORY"
"""Told to a worker: folder in which the ranks of a host exchange files; removed at the end of the job."""

DATA_SERVICE = "PACELINE_DATA_SERVICE"
"""Told to a worker: where the chief listens for data workers (``--data-workers``), as ``host:port``."""

DATA_ADDRESS = "PACELINE_DATA_ADDRESS"
"""Told to a worker: to a data worker, where it listens itself."""

SEED = "PACELINE_SEED"
"""Told to a worker: the job's seed (``--seed``)."""

CPUS = "PACELINE_CPUS"
"""Told to a worker: comma-separated numbers of the cores to which it binds itself; absent: no binding."""

AGENT_FD = "PACELINE_AGENT_FD"
"""Told to a worker: inherited socket to the agent (JSON lines, see ``rendezvous/channel.py``)."""

PMI_FD = "PACELINE_PMI_FD"
"""Told to a worker: inherited socket on which the agent speaks MPICH's PMI-1 protocol (see ``rendezvous/pmi.py``)."""

FREE_SHARED_MEMORY = "PACELINE_FREE_SHARED_MEMORY"
"""Told to a worker: free bytes of `/dev/shm` before the first rank of its host mapped any."""

STANDBY_WORKER = "PACELINE_STANDBY_WORKER"
"""Told to a worker: ``1``: a standby: it imports TensorFlow and waits until it becomes a worker (see
``bootstrap/agent_line.py``)."""

TOLD = "PACELINE_TOLD"
"""Told to a worker: those variables of options that its job has set, with their values, as JSON; a `paceline run` that
the script starts does not read them."""
