"""One rank of a job started by hand: joins as its only argument (JSON) says, then does what `then` says."""

import json
import os
import sys
import time

from paceline.cluster.spec import Address, ClusterSpec, Task
from paceline.errors import ConfigurationError, StartError, exit_code_of
from paceline.rendezvous import attaching
from paceline.rendezvous.attaching import Membership, join_by_hand
from paceline.rendezvous.channel import Failed


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def converse(membership: Membership) -> None:
    """The words of MPICH, as plain text: put a key, meet, read everybody's."""
    with membership.pmi_socket.makefile("rw", newline="\n") as pmi:

        def ask(request: str) -> str:
            pmi.write(request + "\n")
            pmi.flush()
            return pmi.readline()

        ask("cmd=init pmi_version=1 pmi_subversion=1")
        name = ask("cmd=get_my_kvsname").split("kvsname=")[1].strip()
        read = []
        for barrier in range(3):
            value = barrier * 100 + membership.identity.rank
            ask(f"cmd=put kvsname={name} key=k{barrier}-{membership.identity.rank} value={value}")
            assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0\n"
            for rank in range(membership.identity.world_size):
                reply = ask(f"cmd=get kvsname={name} key=k{barrier}-{rank}")
                read.append(int(reply.split("value=")[1]))
        ask("cmd=finalize")
    say(name=name, read=read)


def message_passing(membership: Membership) -> None:
    os.environ.update(
        PMI_FD=str(membership.pmi_socket.detach()),
        PMI_RANK=str(membership.identity.rank),
        PMI_SIZE=str(membership.identity.world_size),
    )
    from mpi4py import MPI

    say(sum=MPI.COMM_WORLD.allreduce(membership.identity.rank + 1), size=MPI.COMM_WORLD.Get_size())
    MPI.Finalize()


def main(what: dict) -> None:
    cluster = ClusterSpec({"worker": tuple(Address(host, port) for host, port in what["addresses"])})
    task = Task("worker", what["index"])
    attaching.AGENT_END_SECONDS = what["agent_end_seconds"]
    membership = join_by_hand(cluster, task, what["versions"], what["seed"], what["seconds"], what["hostname"])
    identity = membership.identity
    say(
        seed=identity.seed,
        job_id=identity.job_id,
        local=[identity.local_rank, identity.local_world_size],
        agent=membership.agent.pid,
    )
    match what["then"]:
        case "leave":
            pass
        case "converse":
            converse(membership)
        case "mpi":
            message_passing(membership)
        case "hang":
            time.sleep(600)
        case "fail":
            sys.stdin.readline()
            membership.line.send(Failed("ZeroDivisionError: division by zero", "", 1))
            os._exit(1)
        case "fail-slowly":
            sys.stdin.readline()
            membership.line.send(Failed("ZeroDivisionError: division by zero", "", 1))
            say(failed=True)
            sys.stdin.readline()
            os._exit(1)
        case "leave-then-wait":
            membership.leave()
            say(left=True)
            sys.stdin.readline()
    membership.leave()


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except (ConfigurationError, StartError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(exit_code_of(error))
