"""Google Cloud: the commands that create N machines of Compute Engine, each of which starts its part of the job.

One command creates all machines, so all get the same start-up script; each learns its rank from the number at the end
of its own name. The first machine's name, which the others resolve inside the network, is where the group meets.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paceline.cluster.faults import Fault, shown
from paceline.render.gcloud_startup import SECRET_ATTRIBUTE, startup_script
from paceline.render.grammar import (
    ABSOLUTE_PATH,
    ACCELERATOR,
    CLOUD_WORD,
    CODE_SOURCE,
    DISK_SIZE,
    HOST_LABEL,
    PACKAGE,
    PROJECT,
    SCOPES,
    SECRET_MANAGER_NAME,
    TEXT,
    ZONE,
    port_fault,
)
from paceline.render.refusal import refuse_any
from paceline.render.shell_text import here_document, option_lines
from paceline.render.training_run import TrainingRun

START_TIMEOUT_SECONDS = 1800.0
"""Without ``--start-timeout``: every machine installs TensorFlow before it joins."""

CPU_IMAGE = ("debian-12", "debian-cloud")
"""Family and project of the image without ``--image-family``; it has Python 3.11."""

_GPU_MACHINES = ("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")
"""Machine types that come with GPUs."""

_SCOPES = "storage-rw,logging-write,monitoring-write"
_ALL_SCOPES = "cloud-platform"
"""What Secret Manager asks for; the machine's account still has only its own roles."""

_MAX_HOST_LABEL_CHARACTERS = 63

_BEGINNING = r"""
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
""".lstrip()

_SECRET = rf"""
# The job's secret; from a file, so that it is on no command line.
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$folder/{SECRET_ATTRIBUTE}")
""".lstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class GcloudTarget:
    """Which machines, and what they start with.

    Args:
        name: The beginning of the machines' names: name-0, name-1, ...
        zone: Where they are.
        machine_type: Their size.
        project: None: the one that `gcloud` uses.
        image_family: Of the boot disk; None: Debian, for machines without GPUs.
        image_project: Whose image it is; needed with `image_family`.
        accelerator: ``type=TYPE,count=NUMBER``; None: none, or those that the machine type has.
        scopes: What the machines may ask of Google Cloud; None: storage, logs and figures.
        boot_disk_size: In GB or TB.
        network: None: the project's default network.
        port: Where the group meets.
        code: A folder of Cloud Storage or a git repository to fetch; None: the image has the script.
        package: What pip installs; None: Paceline with TensorFlow for these machines.
        working_dir: Where the script starts; None: where the code is put.
        secret_name: A secret of Secret Manager; None: one is made, and given as metadata.
        spot: Whether the machines may be taken away.
        setup: Lines of bash that each machine runs before the job, as root.
    """

    name: str
    zone: str
    machine_type: str
    project: str | None = None
    image_family: str | None = None
    image_project: str | None = None
    accelerator: str | None = None
    scopes: str | None = None
    boot_disk_size: str = "100GB"
    network: str | None = None
    port: int = 29400
    code: str | None = None
    package: str | None = None
    working_dir: str | None = None
    secret_name: str | None = None
    spot: bool = False
    setup: tuple[str, ...] = ()

    @property
    def has_gpus(self) -> bool:
        """Whether the machines have GPUs."""
        return self.accelerator is not None or self.machine_type.startswith(_GPU_MACHINES)

    def faults(self, nnodes: int) -> Iterator[Fault]:
        """Everything that is wrong with these values for `nnodes` machines."""
        words = [
            HOST_LABEL.fault("--name", self.name),
            ZONE.fault("--zone", self.zone),
            CLOUD_WORD.fault("--machine-type", self.machine_type),
            PROJECT.fault("--project", self.project),
            CLOUD_WORD.fault("--image-family", self.image_family),
            PROJECT.fault("--image-project", self.image_project),
            ACCELERATOR.fault("--accelerator", self.accelerator),
            SCOPES.fault("--scopes", self.scopes),
            DISK_SIZE.fault("--boot-disk-size", self.boot_disk_size),
            CLOUD_WORD.fault("--network", self.network),
            port_fault(self.port),
            CODE_SOURCE.fault("--code", self.code),
            PACKAGE.fault("--package", self.package),
            ABSOLUTE_PATH.fault("--working-dir", self.working_dir),
            SECRET_MANAGER_NAME.fault("--secret-name", self.secret_name),
            *(TEXT.fault("--setup", line) for line in self.setup),
        ]
        yield from (fault for fault in words if fault is not None)
        last = f"{self.name}-{max(nnodes, 1) - 1}"
        if len(self.name) <= _MAX_HOST_LABEL_CHARACTERS < len(last):
            expected = f"a name so short that the last machine's, {last}, has at most 63 characters"
            yield Fault("--name", shown(self.name), expected, "shorten it")
        if (self.image_family is None) != (self.image_project is None):
            received = shown([self.image_family, self.image_project])
            yield Fault("--image-family", received, "a family together with its --image-project", "give both")
        if self.has_gpus and self.image_family is None:
            expected = "an image with NVIDIA's driver for machines with GPUs"
            fix = "choose one of `gcloud compute images list --project=deeplearning-platform-release`"
            yield Fault("--image-family", "nothing", expected, fix)
        if self.secret_name and self.scopes and _ALL_SCOPES not in self.scopes.split("/")[-1].split(","):
            expected = f"{_ALL_SCOPES} among them, which Secret Manager asks for"
            yield Fault("--scopes", shown(self.scopes), expected, "add it, or leave --scopes out")


def gcloud_commands(run: TrainingRun, target: GcloudTarget) -> str:
    """A bash script that creates the machines.

    Raises:
        ConfigurationError: names everything that is wrong with the values.
    """
    refuse_any((*run.faults(), *target.faults(run.nnodes)))
    if run.start_timeout_seconds is None:
        run = replace(run, start_timeout_seconds=START_TIMEOUT_SECONDS)
    startup = startup_script(
        run,
        rendezvous=f"{target.name}-0:{target.port}",
        package=target.package or f"paceline[{'gpu' if target.has_gpus else 'cpu'}]",
        has_gpus=target.has_gpus,
        code=target.code,
        working_dir=target.working_dir,
        secret_name=target.secret_name,
        setup=target.setup,
    )
    files = ["startup-script=$folder/startup.sh"]
    if target.secret_name is None:
        files.append(f"{SECRET_ATTRIBUTE}=$folder/{SECRET_ATTRIBUTE}")
    names = [f"{target.name}-{index}" for index in range(run.nnodes)]
    create = option_lines(["gcloud", "compute", "instances", "create", *names], _options(target))
    lines = [
        "#!/usr/bin/env bash",
        "# Made by `paceline render gcloud`. Creates the machines of the job. Run it with: bash FILE",
        _BEGINNING,
        *((_SECRET,) if target.secret_name is None else ()),
        *here_document('cat > "$folder/startup.sh"', startup, "END_OF_STARTUP_SCRIPT"),
        "",
        *create[:-1],
        f"{create[-1]} \\",
        f'    --metadata-from-file="{",".join(files)}"',
    ]
    return "\n".join(lines) + "\n"


def _options(target: GcloudTarget) -> list[str]:
    family, image_project = target.image_family or CPU_IMAGE[0], target.image_project or CPU_IMAGE[1]
    given = {
        "project": target.project,
        "zone": target.zone,
        "machine-type": target.machine_type,
        "image-family": family,
        "image-project": image_project,
        "accelerator": target.accelerator,
        # A machine with GPUs cannot move to another host while it runs.
        "maintenance-policy": "TERMINATE" if target.has_gpus or target.spot else None,
        "boot-disk-size": target.boot_disk_size,
        "network": target.network,
        "scopes": target.scopes or (_ALL_SCOPES if target.secret_name else _SCOPES),
        "tags": target.name,
        # Google's own images for machine learning install the driver when asked like this; others ignore it.
        "metadata": "install-nvidia-driver=True" if target.has_gpus else None,
        "provisioning-model": "SPOT" if target.spot else None,
        "instance-termination-action": "STOP" if target.spot else None,
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]
