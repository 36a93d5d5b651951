"""A process that writes snapshots and is killed on the way. Not a test: `test_kill.py` starts it.

snapshot_writer.py DIRECTORY random            writes until it is killed; a line for each commit
snapshot_writer.py DIRECTORY sweep             forks one writer for each event of the file system; the n-th one is
                                               killed at its n-th event; prints how many there were
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path

import numpy
from made_snapshots import save

from paceline.store.manifest import DamagedSnapshot, SnapshotMeta
from paceline.store.shards import Shard
from paceline.store.snapshots import SnapshotStore, Writer

KEEP = 2
_LARGE_BYTES = 4 << 20


def write_for_ever(directory: str) -> None:
    store = SnapshotStore(directory, keep=KEEP, writer=Writer("job-a", os.getpid()))
    with store.hold():
        found = store.newest_intact().found
        for step in count(1 + (found.step if found else 0)):
            part = Shard({"w": numpy.full(_LARGE_BYTES, step % 256, "uint8")}, {"step": step})
            store.commit(step, SnapshotMeta(0, 0, 1), [store.write_shard(step, 0, part)])
            print(step, flush=True)


def sweep(directory: str) -> None:
    """Each child writes the snapshot after the newest one; the parent looks what is there after each death."""
    for number in count(1):
        child = os.fork()
        if not child:
            _write_once(directory, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        search = SnapshotStore(directory).newest_intact()
        damaged = sum(isinstance(entry, DamagedSnapshot) for entry in SnapshotStore(directory).entries())
        SnapshotStore(directory).prune(KEEP)  # else ever more would be left to delete
        print(number, search.found.step if search.found else 0, damaged, flush=True)
        if not os.WIFSIGNALED(status):
            break


def _write_once(directory: str, fatal_event: int) -> None:
    os.fsync = lambda _: None  # the kernel outlives the process: here it costs time and changes nothing
    store = SnapshotStore(directory, keep=KEEP, writer=Writer("job-a", fatal_event))
    events = 0

    def die_in_time(name: str, arguments: tuple[object, ...]) -> None:
        nonlocal events
        if name in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"):
            # Deleting a tree names its members relative to an open directory.
            events += directory in str(arguments[0]) or name in ("os.remove", "os.rmdir")
            if events == fatal_event:
                os.kill(os.getpid(), signal.SIGKILL)

    with store.hold():
        found = store.newest_intact().found
        sys.addaudithook(die_in_time)
        save(store, 1 + (found.step if found else 0))


if __name__ == "__main__":
    {"random": write_for_ever, "sweep": sweep}[sys.argv[2]](str(Path(sys.argv[1]).absolute()))
