"""python departing_failed.py HOW: a process with exit handlers fails. HOW: "alone", "member" (of a group), "prompt"."""

import atexit
import socket
import sys

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.comm.departure import Departure
from paceline.comm.solo import SoloGroup
from paceline.comm.world import World
from paceline.errors import ConfigurationError
from paceline.rendezvous.channel import AgentLine

atexit.register(print, "registered before")
departure = Departure()
departure.watch()
atexit.register(print, "registered after")
if sys.argv[1] == "alone":
    raise ConfigurationError("no such port [port]")
line, agent = socket.socketpair()
departure.world = World(
    WorkerIdentity(
        task=Task(WORKER, 0), rank=0, world_size=2, local_rank=0, local_world_size=2, generation=1, job_id="a", seed=7
    ),
    connect=SoloGroup,
    line=AgentLine(line),
    leave=lambda: print("left", agent.recv(1 << 16), flush=True),
)
if sys.argv[1] == "prompt":
    raise LookupError("a typo")
sys.exit(3)
