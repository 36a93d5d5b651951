"""python departing.py: forked children and a thread end in every way, then a rank without a group ends well."""

import multiprocessing
import os
import socket
import sys
import threading

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.comm.departure import Departure
from paceline.comm.solo import SoloGroup
from paceline.comm.world import World
from paceline.rendezvous.channel import AgentLine

line, agent = socket.socketpair()
agent.setblocking(False)
departure = Departure()
departure.watch()
departure.world = World(
    WorkerIdentity(
        task=Task(WORKER, 0), rank=0, world_size=2, local_rank=0, local_world_size=2, generation=1, job_id="a", seed=7
    ),
    connect=SoloGroup,
    line=AgentLine(line),
    leave=lambda: print("left", agent.recv(1 << 16), flush=True),
)


def forked(how: str) -> int:
    """The exit code of a child that ends like that."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if how == "raises":
        raise LookupError("in the child")
    sys.exit({"well": 0, "fails": 3}[how])


child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(1,))
child.start()
child.join()
thread = threading.Thread(target=sys.exit, args=(1,))  # ends itself only
thread.start()
thread.join()
print(child.exitcode, forked("well"), forked("fails"), forked("raises"), flush=True)
try:
    print("told", agent.recv(1 << 16), flush=True)
except BlockingIOError:
    print("told nothing", flush=True)
