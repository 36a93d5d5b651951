"""Google Cloud: the commands that create N machines of Compute Engine, each of which starts its part of the job.

One command creates all machines, so all get the same start-up script; each learns its rank from the number at the end
of its own name. The first machine's name, which the others resolve inside the network, is where the group meets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from paceline.cluster.options import OptionTable, option
from paceline.cluster.value_checks import Fault, Grammar, refuse_any, shown
from paceline.render.gcloud_startup import SECRET_ATTRIBUTE, startup_script
from paceline.render.shell_text import here_document, option_lines
from paceline.render.training_run import ABSOLUTE_PATH, HOST_LABEL, PORT, TEXT, TrainingRun

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

_ZONE = Grammar(r"[a-z]+-[a-z]+[0-9]+-[a-z]", "a zone of Compute Engine", "us-central1-a")

_CLOUD_WORD = Grammar(r"[a-z]([a-z0-9-]*[a-z0-9])?", "lower-case letters, digits and '-'", "n2-standard-8")

_PROJECT = Grammar(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]*", "the identifier of a project", "my-project-123")

_ACCELERATOR = Grammar(r"type=[a-z][a-z0-9-]*(,count=[1-9][0-9]*)?", "type=TYPE,count=NUMBER", "type=nvidia-l4,count=1")

_SCOPE_NAMES = Grammar(
    r"[A-Za-z0-9:/._-]+(,[A-Za-z0-9:/._-]+)*", "names of scopes with ',' between", "storage-rw,logging-write", 2000
)

_DISK_SIZE = Grammar(r"[1-9][0-9]*(GB|TB)", "a size in GB or TB", "100GB")

_CODE_SOURCE = Grammar(
    r"gs://[a-z0-9][a-z0-9._-]*(/[^\s#?*\[\]]*)?|https://[^\s]+",
    "gs://BUCKET/FOLDER or https://... of a git repository",
    "gs://my-bucket/my-code",
    1000,
)

_SECRET_MANAGER_NAME = Grammar(r"[A-Za-z0-9_-]{1,255}", "the name of a secret of Secret Manager", "train-secret", 255)

_PACKAGE = Grammar(r"[^\s-][^\n]*", "what pip installs", "paceline[gpu]", 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcloudTarget(OptionTable):
    """Which machines, and what they start with: the options of ``paceline render gcloud``."""

    PREFIX: ClassVar[str] = "GCLOUD_"

    name: str = option("paceline", "The machines are NAME-0, NAME-1, ...", metavar="NAME", check=HOST_LABEL)
    zone: str = option(..., "The zone of the machines, such as us-central1-a.", metavar="ZONE", check=_ZONE)
    machine_type: str = option(
        ..., "The type of the machines, such as n2-standard-8 or g2-standard-24.", metavar="TYPE", check=_CLOUD_WORD
    )
    project: str | None = option(None, "The project. Default: the one that gcloud uses.", metavar="ID", check=_PROJECT)
    image_family: str | None = option(
        None, "Image family of the boot disk. Default: debian-12, without GPUs.", metavar="FAMILY", check=_CLOUD_WORD
    )
    image_project: str | None = option(None, "The project of the image.", metavar="ID", check=_PROJECT)
    accelerator: str | None = option(
        None,
        "GPUs of each machine, unless the machine type includes GPUs.",
        metavar="type=T,count=N",
        check=_ACCELERATOR,
    )
    scopes: str | None = option(
        None,
        f"What the machines may ask of Google Cloud. Default: {_SCOPES}.",
        metavar="NAMES",
        check=_SCOPE_NAMES,
    )
    boot_disk_size: str = option("100GB", "The size of the boot disk, in GB or TB.", metavar="SIZE", check=_DISK_SIZE)
    network: str | None = option(
        None, "The network of the machines. Default: the network 'default'.", metavar="NAME", check=_CLOUD_WORD
    )
    port: int = option(29400, "The port on the first host at which the hosts connect.", metavar="PORT", check=PORT)
    code: str | None = option(
        None,
        "gs://BUCKET/FOLDER or an https:// git repository with the script. Default: the script is in the image.",
        metavar="SOURCE",
        check=_CODE_SOURCE,
    )
    package: str | None = option(
        None, "The package that pip installs. Default: paceline[gpu] or paceline[cpu].", metavar="SPEC", check=_PACKAGE
    )
    working_dir: str | None = option(
        None, "The working directory of the script on the hosts.", metavar="FOLDER", check=ABSOLUTE_PATH
    )
    secret_name: str | None = option(
        None,
        "A secret of Secret Manager. Default: a new one, in the machines' metadata.",
        metavar="NAME",
        check=_SECRET_MANAGER_NAME,
    )
    spot: bool = option(False, "Use spot machines, which are cheap and may be preempted.")
    setup: tuple[str, ...] = option(
        (),
        "A line of bash to run before the job, as root, such as 'module load cuda'; repeat for more.",
        metavar="BASH",
        check=TEXT,
        separator="\n",
    )

    @property
    def has_gpus(self) -> bool:
        """Whether the machines have GPUs."""
        return self.accelerator is not None or self.machine_type.startswith(_GPU_MACHINES)

    def faults(self, nnodes: int) -> Iterator[Fault]:
        """Everything that is wrong with these values for `nnodes` machines."""
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
    refuse_any("the command line", "[option]", (*run.faults(), *target.faults(run.nnodes)))
    run = run.with_start_timeout(START_TIMEOUT_SECONDS)
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
