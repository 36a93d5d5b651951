"""A laptop and two machines, alpha and beta, all of them on this computer: types a command on the laptop.

python two_machines.py paceline run --hosts alpha:1,beta:1 train.py

laptop ── ssh ──► alpha  worker 0 ─┐
       └─ ssh ──► beta   worker 1 ─┴─ a network of their own

Each has a name, a network interface, processes, an OpenSSH server and half of the cores of its own; the files are those
of this computer. Needs Linux, root, openssh-server, iproute2 and a checkout of Paceline; nothing of the machines stays.
"""

import os
import subprocess
import sys
from pathlib import Path

import paceline

TESTS = Path(paceline.__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "hosts")]

import lab  # noqa: E402
import secure_shell  # noqa: E402


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit("two_machines.py: which command? For example: python two_machines.py hostname")
    if reason := lab.why_not() or secure_shell.why_not():
        sys.exit(f"two_machines.py: cannot make machines here (needs Linux and root): {reason}")
    with lab.Lab(2, ssh=True, laptop=True, own_cores=True) as machines:
        command = machines.command(lab.LAPTOP, sys.argv[1:], Path.cwd())
        return subprocess.run(command, env={**os.environ, **lab.TCP_ONLY}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
