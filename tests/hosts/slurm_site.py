"""A real Slurm on the hosts of a lab: the distribution's daemons, configured in a temporary folder.

    alpha: munged  slurmctld  slurmd          beta: munged  slurmd         ...

Every host is a node of the partition `lab`. The daemons are root's, as the lab is, and end with the lab. munge's socket
is where it always is, in /run, which every host has for itself.
"""

import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import Lab

from programs import LIMIT_SECONDS, Ended, Program

CPUS_PER_NODE = 4
"""As Slurm believes: what the machine has does not matter to it."""

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
_SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
_START_SECONDS = 120.0


def why_not() -> str:
    """Why there can be no Slurm here, or ""."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_SEARCH_PATH) is None]
    return f"{', '.join(missing)} not installed (Debian and Ubuntu: slurm-wlm, munge)" if missing else ""


class SlurmSite:
    """Slurm on all hosts of `lab`, from the first of which jobs are submitted.

    Args:
        lab: The hosts.
        folder: Empty; for configuration, state and logs.

    Raises:
        RuntimeError: it did not come up; the message has the daemons' last words.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self._folder = folder
        self._configuration = folder / "slurm.conf"
        self._daemons: list[Program] = []
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        self._configuration.write_text(_configuration(lab, folder))
        for host in lab.hosts:
            self._start(host, _munged(folder, host))
        self._start(lab.hosts[0], ["slurmctld", "-D", "-c", "-f", self._configuration])
        for host in lab.hosts:
            (folder / f"spool_{host}").mkdir()
            self._start(host, ["slurmd", "-D", "-f", self._configuration])
        self._wait_until_idle()

    @property
    def variables(self) -> Mapping[str, str]:
        """What a program needs in its environment to find this Slurm."""
        return {"SLURM_CONF": str(self._configuration)}

    def run(
        self,
        arguments: Sequence[str | Path],
        folder: Path | str = "/tmp",
        variables: Mapping[str, str] | None = None,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> Ended:
        """Runs `srun`, `sbatch` or another of Slurm's commands on the first host."""
        everything = {**self.variables, **(variables or {})}
        return self.lab.run(self.lab.hosts[0], arguments, everything, folder, limit_seconds)

    def _start(self, host: str, arguments: Sequence[str | Path]) -> None:
        self._daemons.append(self.lab.start(host, ["env", f"PATH={_SEARCH_PATH}", *arguments]))

    def _wait_until_idle(self) -> None:
        give_up_at = time.monotonic() + _START_SECONDS
        while True:
            seen = self.run(["sinfo", "--noheader", "--Node", "--format=%N %t"])
            if sorted(seen.output.splitlines()) == sorted(f"{host} idle" for host in self.lab.hosts):
                return
            if time.monotonic() > give_up_at:
                words = "\n".join(one.output()[-2000:] for one in self._daemons)
                raise RuntimeError(f"Slurm did not start: {seen.output}\n{words}")
            time.sleep(0.1)


def _munged(folder: Path, host: str) -> list[str | Path]:
    files = [f"--{name}-file={folder / f'munge_{host}'}.{name}" for name in ("log", "pid", "seed")]
    socket = "/run/munge/munge.socket.2"
    command = ["munged", "--foreground", "--force", f"--key-file={folder / 'munge.key'}", f"--socket={socket}", *files]
    return ["sh", "-c", 'mkdir -p -m 755 /run/munge && exec "$@"', "sh", *command]


def _configuration(lab: Lab, folder: Path) -> str:
    nodes = "\n".join(
        f"NodeName={host} NodeAddr={lab.address(host)} CPUs={CPUS_PER_NODE} State=UNKNOWN" for host in lab.hosts
    )
    return f"""ClusterName=lab
SlurmctldHost={lab.hosts[0]}({lab.address(lab.hosts[0])})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=5
MinJobAge=30
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
