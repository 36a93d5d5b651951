"""The worker's ear for its agent: it answers where it is, and ends when the line has closed, for the agent is gone.

agent ✝ ──► guard ends the job (``launcher/workers/guard.py``)
guard ✝, too ──► each worker appoints a new one, which does what the first one would have done

A thread listens, because the main thread may sit in TensorFlow, where neither a signal's handler nor an exception
is heard. A guard and not just an exit: it ends also what the script has started, ranks that are stopped, and what the
job keeps in files and shared memory.

A standby is a worker that has imported everything and waits at this line to be needed: a restart takes seconds less.

    agent ── PACELINE_STANDBY_WORKER=1 ──► import Keras ──► wait ── one line: the variables of a worker ──► run

It opens no device and draws no random number meanwhile. What a script sets in ``os.environ`` before its own import of
TensorFlow comes too late in a standby: such settings belong on the command line (``--env``).
"""

import contextlib
import importlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from paceline.cluster import environment
from paceline.comm.world import World
from paceline.leaving import exit_now
from paceline.rendezvous.guard_words import Appointed, GenerationBegins, WorkerStarted
from paceline.wire.codec import Decoder, GarbledError
from paceline.wire.frames import line, receive_line

_STANDBY_MODULES = (
    "numpy",
    "tensorflow",
    "keras",
    "mpi4py",
    "paceline.strategy.multi_worker_mirrored",
    "paceline.strategy.serving",
    "paceline.seams.install",
)
_MAX_ORDER_BYTES = 1 << 22
_GUARD = "paceline.launcher.workers.guard"
_GUARD_SECONDS = 10.0


def listen_to_agent(world: World, variables: Mapping[str, str]) -> None:
    """From now on this process answers its agent, and ends with it, as do its children and the host's other ranks.

    Args:
        world: Whose line to the agent is watched.
        variables: The environment, before the script has changed it.
    """
    agent_id = variables.get(environment.AGENT_ID)
    if agent_id is None:
        return
    job_id, generation = world.identity.job_id, world.identity.generation
    appointment = b"".join(
        map(line, (Appointed(job_id, agent_id), GenerationBegins(generation), WorkerStarted(os.getpid())))
    )
    # Without the marks of the job: the guards of two ranks must not end each other.
    own = {name: value for name, value in variables.items() if name not in (environment.AGENT_ID, environment.JOB_ID)}

    def listen() -> None:
        if world.answer_agent():
            _appoint_guard(appointment, own)

    threading.Thread(target=listen, name="paceline listens to its agent", daemon=True).start()


def _appoint_guard(appointment: bytes, variables: Mapping[str, str]) -> None:
    with contextlib.suppress(OSError):  # no process can be started: at least this one ends
        guard = subprocess.Popen(
            [sys.executable, "-P", "-m", _GUARD, "orphan"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(variables),
            start_new_session=True,
        )
        guard.communicate(appointment)
        time.sleep(_GUARD_SECONDS)  # it ends this process meanwhile, having seen what descends from it
    exit_now(1)


def wait_if_standby() -> None:
    """Returns at once in a usual worker; in a standby when it is called to be one, with the variables of that worker.

    Raises:
        SystemExit: it was not needed: its agent is gone, or the job is over.
    """
    if os.environ.pop(environment.STANDBY_WORKER, None) != "1":
        return
    # A duplicate: the worker's own line begins with the same descriptor.
    line = socket.socket(fileno=os.dup(int(os.environ[environment.AGENT_FD])))
    with line:
        for name in _STANDBY_MODULES:
            importlib.import_module(name)
        try:
            variables = Decoder[dict[str, str]](dict[str, str])(receive_line(line, None, _MAX_ORDER_BYTES))
        except (OSError, GarbledError):
            raise SystemExit(0) from None
    descriptors = {name: os.environ[name] for name in (environment.AGENT_FD, environment.PMI_FD)}
    os.environ.clear()
    os.environ.update(variables)
    os.environ.update(descriptors)
