"""OpenSSH for the lab: keys and configuration for clients and servers, made anew for every lab."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PORT = 22


def write_configuration(folder: Path, hosts: Sequence[str]) -> None:
    """Fills `folder`, which the hosts see as /etc/ssh: any host may then call any other one as root, by its name.

    Args:
        folder: Exists; private to the lab.
        hosts: Names of the hosts, which all have one host key.
    """
    for name in ("host_key", "client_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(folder / name)],
            check=True,
            timeout=60,
        )
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"{host} {public}" for host in hosts))
    (folder / "authorized_keys").write_text((folder / "client_key.pub").read_text())
    (folder / "ssh_config").write_text(
        f"""Host {" ".join(hosts)}
  User root
  Port {PORT}
  IdentityFile {folder / "client_key"}
  IdentitiesOnly yes
  UserKnownHostsFile {folder / "known_hosts"}
  StrictHostKeyChecking yes
  BatchMode yes
"""
    )
    (folder / "sshd_config").write_text(
        f"""Port {PORT}
HostKey {folder / "host_key"}
AuthorizedKeysFile {folder / "authorized_keys"}
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
UseDNS no
PidFile none
LogLevel ERROR
MaxStartups 100
PrintMotd no
"""
    )


def why_not() -> str:
    """Why there can be no server here, or ""."""
    return "" if _server() and shutil.which("ssh-keygen") else "no sshd installed (Debian and Ubuntu: openssh-server)"


def server_command(folder: Path) -> list[str]:
    """The command line of a server in the foreground.

    Raises:
        RuntimeError: there is none on this machine.
    """
    server = _server()
    if server is None:
        raise RuntimeError(why_not())
    return [server, "-D", "-e", "-f", str(folder / "sshd_config")]


def _server() -> str | None:
    """By its absolute path, which OpenSSH insists on."""
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
