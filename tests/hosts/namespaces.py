"""One host of the lab: a set of namespaces that a process holds, and what can be done to it from outside.

    unshare (child of the test) ──► process 1 of the host: makes the mounts, says "ready", sleeps, reaps
                                      ▲
    nsenter ──► setpriv ──► env ──► the command

When process 1 dies the kernel kills everything else in the host, and with the last process go its mounts and
interfaces: nothing has to be taken apart. Process 1 dies with `unshare`, and `unshare` with the thread that made the
host, whatever ends that. Only the machine's own programs are used (util-linux, iproute2), by absolute paths of the
machine.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
START_SECONDS = 60.0
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")

_HOST_SCRIPT = """
set -e
echo "$NAME" > /proc/sys/kernel/hostname
mount --rbind /sys/fs/cgroup "$FOLDER/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$FOLDER/cgroup" /sys/fs/cgroup
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/lock
for file in hosts nsswitch.conf resolv.conf passwd shadow; do mount --bind "$FOLDER/$file" "/etc/$file"; done
if [ -d /etc/ssh ]; then mount --bind "$SHARED/ssh" /etc/ssh; fi
ip link set lo up
trap '' CHLD
echo ready
exec sleep infinity
"""
"""Names come from the host's own files only, so that a wrong name fails at once; /sys shows this host's interfaces;
an ignored SIGCHLD makes the kernel reap orphans. /tmp stays the machine's: the hosts' shared file system."""

_SWITCH_SCRIPT = """
set -e
ip link set lo up
ip link add switch type bridge
ip link set switch up
echo ready
exec sleep infinity
"""


class Holder:
    """A process that keeps namespaces alive. Make it in a thread that outlives it.

    Args:
        namespaces: Options of `unshare`.
        script: What its process 1 does in bash (dash cannot ignore SIGCHLD); says "ready" and stays.
        variables: For the script.

    Raises:
        RuntimeError: the namespaces could not be made; the message has what the commands said.
    """

    def __init__(self, namespaces: Sequence[str], script: str, variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", *namespaces, "bash", "-c", script],
            env={"PATH": SEARCH_PATH, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = 0
        """Of process 1 inside, as this process sees it."""

    def wait_until_ready(self) -> None:
        """Blocks until the script said so; from then on `pid` is its process."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != b"ready\n":
            self._process.kill()
            said += self._process.stdout.read()
            self.close()
            raise RuntimeError(f"namespaces could not be made: {said.decode(errors='replace').strip()}")
        (self.pid,) = (child.pid for child in psutil.Process(self._process.pid).children())

    def close(self) -> None:
        """Ends every process inside, and with them the namespaces. Idempotent."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(START_SECONDS)
        self._process.stdout.close()


def make_host(name: str, folder: Path, shared: Path) -> Holder:
    """A host without a network yet.

    Args:
        name: Its host name.
        folder: Of this host: its private files of /etc, and a mount point.
        shared: Of the lab: has the `ssh` folder that becomes /etc/ssh.
    """
    (folder / "cgroup").mkdir(parents=True)
    (folder / "hosts").touch()
    (folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
    (folder / "resolv.conf").touch()
    (folder / "home").mkdir()
    (folder / "passwd").write_text(_passwd(folder / "home"))
    (folder / "shadow").write_text("root:*:19000:0:99999:7:::\n")
    variables = {"NAME": name, "FOLDER": str(folder), "SHARED": str(shared)}
    return Holder((*_NAMESPACES, "--mount-proc"), _HOST_SCRIPT, variables)


def _passwd(home: Path) -> str:
    """The machine's users, but root's home is empty: what a login shell reads on this machine is none of the hosts'."""
    users = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in users if not line.startswith("root:")]
    return "\n".join([f"root:x:0:0:root:{home}:/bin/bash", *others]) + "\n"


def make_switch() -> Holder:
    """A network namespace with a bridge, `switch`, in it."""
    return Holder(["--net"], _SWITCH_SCRIPT, {})


def inside(pid: int, arguments: Sequence[str | Path], folder: Path | str = "/") -> list[str]:
    """The command line that runs `arguments` in `folder` in all namespaces of process `pid`.

    It ends when `nsenter` is killed; what it has started goes on.
    """
    enter = ["nsenter", "--target", str(pid), *_NAMESPACES, "--", "setpriv", "--pdeathsig", "KILL"]
    return [*enter, "env", f"--chdir={folder}", *map(str, arguments)]


def configure_network(pid: int, *commands: str) -> None:
    """Runs `commands` of `ip` in the network namespace of process `pid`, in one go."""
    _run_tool(pid, ["ip", "-batch", "-"], "\n".join(commands))


def shape_traffic(pid: int, *arguments: str) -> None:
    """Runs `tc` in the network namespace of process `pid`."""
    _run_tool(pid, ["tc", *arguments], "")


def processes_of(pid: int) -> set[int]:
    """The processes of the host whose process 1 is `pid`, without that one."""
    own = Path(f"/proc/{pid}/ns/pid").readlink()
    found = set()
    for other in psutil.pids():
        try:
            if other != pid and Path(f"/proc/{other}/ns/pid").readlink() == own:
                found.add(other)
        except OSError:  # it has ended
            continue
    return found


def signal_all(pid: int, number: signal.Signals) -> None:
    """Sends `number` to every process of a host but its first, also to those that are started meanwhile."""
    reached: set[int] = set()
    give_up_at = time.monotonic() + START_SECONDS
    while (left := processes_of(pid) - reached) and time.monotonic() < give_up_at:
        for other in left:
            try:
                os.kill(other, number)
            except ProcessLookupError:
                continue
        reached |= left


def interface_bytes(pid: int, interface: str) -> tuple[int, int]:
    """Bytes that came in and went out at `interface` of the network namespace of process `pid`."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            numbers = counters.split()
            return int(numbers[0]), int(numbers[8])
    raise LookupError(f"no interface {interface} there")


def listens(pid: int, port: int) -> bool:
    """Whether some process listens on TCP `port` in the network namespace of process `pid`."""
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == "0A" and int(local.rpartition(":")[2], 16) == port:
            return True
    return False


def _run_tool(pid: int, arguments: Sequence[str], text: str) -> None:
    ended = subprocess.run(
        ["nsenter", "--target", str(pid), "--net", "--", *arguments],
        input=text.encode(),
        env={"PATH": SEARCH_PATH},
        capture_output=True,
        timeout=START_SECONDS,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {ended.stderr.decode(errors='replace').strip()}\n{text}")
