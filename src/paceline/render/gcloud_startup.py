"""The start-up script of a cloud machine: fetch the secret, install, fetch the code, start the job as a service.

Compute Engine runs it as root at every boot, so every step may find its work done. The job itself runs as a user
without rights, under systemd: a machine that is about to be taken away then sends SIGTERM to the agent alone.
"""

import shlex
from collections.abc import Sequence

from paceline.cluster import job_options
from paceline.render.shell_text import command_line, exports, here_document
from paceline.render.training_run import TrainingRun

SECRET_ATTRIBUTE = "paceline-secret"
"""The machines' metadata entry that holds the job's secret."""

_HOME = "/home/paceline"
_JOB_FOLDER = f"{_HOME}/job"
_SECRET_FILE = "/run/paceline/secret"
_GRACE_SECONDS = 25
"""A machine that is taken away has 30 seconds."""

_IDENTITY = r"""
# Who this machine is: the number at the end of its name.
metadata() {
    curl --fail --silent --show-error --retry 10 --retry-connrefused --header 'Metadata-Flavor: Google' \
        "http://metadata.google.internal/computeMetadata/v1/instance/$1"
}
name=$(metadata name)
node_rank=${name##*-}
id -u paceline > /dev/null 2>&1 || useradd --create-home --shell /bin/bash paceline
""".lstrip()

_INSTALLATION = r"""
if [ ! -x /opt/paceline/bin/paceline ]; then
    # Debian and Ubuntu ship Python without the part that makes virtual environments.
    if ! python3 -c 'import ensurepip'; then
        apt-get update --quiet
        DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes python3-venv
    fi
    python3 -m venv --clear /opt/paceline
    /opt/paceline/bin/pip install --quiet @PACKAGE@
fi
export PATH=/opt/paceline/bin:$PATH
""".lstrip()

_DRIVER = r"""
# Google's images install NVIDIA's driver at the first boot, beside this script.
for _ in $(seq 90); do
    if nvidia-smi > /dev/null 2>&1; then break; fi
    sleep 10
done
nvidia-smi --list-gpus
""".lstrip()

_SERVICE = rf"""
chmod 700 /opt/paceline-job
chown paceline: /opt/paceline-job
systemd-run --unit=paceline --collect --uid=paceline --working-directory=@FOLDER@ \
    --property=KillMode=mixed --property=TimeoutStopSec={_GRACE_SECONDS} \
    /bin/bash /opt/paceline-job "$node_rank"
echo "paceline: node $node_rank has started; follow it with: journalctl --unit=paceline --follow"
""".lstrip()


def startup_script(
    run: TrainingRun,
    *,
    rendezvous: str,
    package: str,
    has_gpus: bool,
    code: str | None,
    working_dir: str | None,
    secret_name: str | None,
    setup: Sequence[str],
) -> str:
    """The script; the same for every machine of the job."""
    folder = working_dir or _JOB_FOLDER
    lines = [
        "#!/bin/bash",
        "set -euo pipefail",
        "",
        _IDENTITY,
        *_secret(secret_name),
        "",
        _INSTALLATION.replace("@PACKAGE@", shlex.quote(package)),
        *((_DRIVER,) if has_gpus else ()),
        *_code(code),
        f"cd {shlex.quote(folder)}",
        *setup,
        "",
        *here_document("(umask 077 && cat > /opt/paceline-job)", _job(run, rendezvous), "END_OF_JOB"),
        _SERVICE.replace("@FOLDER@", shlex.quote(folder)),
    ]
    return "\n".join(lines)


def _secret(secret_name: str | None) -> list[str]:
    if secret_name is None:
        reading = f"metadata attributes/{SECRET_ATTRIBUTE}"
    else:
        reading = command_line(["gcloud", "secrets", "versions", "access", "latest", f"--secret={secret_name}"])
    return [
        "install --directory --owner=paceline --mode=700 /run/paceline",
        f"{reading} | install --owner=paceline --mode=600 /dev/stdin {_SECRET_FILE}",
    ]


def _code(code: str | None) -> list[str]:
    make = f"install --directory --owner=paceline {_JOB_FOLDER}"
    if code is None:
        return [make]
    if code.startswith("gs://"):
        fetch = command_line(["gcloud", "storage", "rsync", "--recursive", code, _JOB_FOLDER])
        return [make, fetch, f"chown --recursive paceline: {_JOB_FOLDER}"]
    clone = command_line(["git", "clone", "--depth=1", "--", code, _JOB_FOLDER])
    return [f"[ -e {_JOB_FOLDER}/.git ] || {clone}", f"chown --recursive paceline: {_JOB_FOLDER}"]


def _job(run: TrainingRun, rendezvous: str) -> str:
    """What the service runs; its one argument is the node's rank."""
    words = list(run.command("--nnodes", str(run.nnodes), "--rendezvous", rendezvous))
    return "\n".join(
        [
            "export PATH=/opt/paceline/bin:$PATH",
            *exports({job_options.SECRET_FILE: _SECRET_FILE, **run.given_variables()}),
            f'exec {command_line(words[:2])} --node-rank "$1" {command_line(words[2:])}',
        ]
    )
