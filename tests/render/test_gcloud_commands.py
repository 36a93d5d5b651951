"""The commands and the start-up script as a shell runs them; `gcloud` and what a machine has are stand-ins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_programs import LIMIT_SECONDS, write_program
from golden_files import FULL, SMALL

from paceline.cluster.job_options import JobOptions
from paceline.errors import ConfigurationError
from paceline.render.gcloud import GcloudTarget, gcloud_commands
from paceline.render.training_run import TrainingRun

TARGET = GcloudTarget(name="train", zone="us-central1-a", machine_type="n2-standard-8", code="gs://bucket/code")
RUN = TrainingRun(
    script="train.py",
    arguments=("it's", "$HOME", "a\nEND_OF_JOB\nb", ""),
    options=JobOptions(nnodes=3),
    variables={"A": "b c"},
)

GCLOUD = f"""#!{sys.executable}
import json, os, sys
files = dict(part.split("=", 1) for word in sys.argv if word.startswith("--metadata-from-file=")
             for part in word.partition("=")[2].split(","))
report = {{"words": sys.argv[1:], "files": {{name: open(path).read() for name, path in files.items()}}, "paths": files}}
print(json.dumps(report))
"""

RECORD = """#!/bin/bash
printf '%s\\n' "${0##*/} $*" >> "$RECORD"
"""

CURL = """#!/bin/bash
case "${@: -1}" in
    */instance/name) printf train-2 ;;
    */instance/attributes/paceline-secret) printf c0ffee ;;
    *) exit 22 ;;
esac
"""

# There is no user `paceline` here, and these folders are not the test's.
INSTALL = """#!/bin/bash
words=()
for word; do case "$word" in --owner=*) ;; *) words+=("$word") ;; esac; done
exec /usr/bin/install "${words[@]}"
"""

PACELINE = f"""#!{sys.executable}
import json, os, sys
secret = open(os.environ["PACELINE_SECRET_FILE"]).read()
print(json.dumps({{"words": sys.argv[1:], "A": os.environ["A"], "secret": secret}}))
"""


def created(script: str, folder: Path) -> "dict[str, object]":
    """What `gcloud` is asked for when the script runs."""
    path = folder / "create.sh"
    path.write_text(script)
    write_program(folder / "programs", "gcloud", GCLOUD)
    environment = {"PATH": f"{folder / 'programs'}:{os.environ['PATH']}"}
    finished = subprocess.run(
        ["bash", path], env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, cwd=folder
    )
    assert finished.returncode == 0, finished.stderr
    report: dict[str, object] = json.loads(finished.stdout)
    return report


def test_one_machine_for_each_node_with_one_start_up_script(tmp_path: Path) -> None:
    report = created(gcloud_commands(RUN, TARGET), tmp_path)
    words = report["words"]
    assert isinstance(words, list)
    assert words[:6] == ["compute", "instances", "create", "train-0", "train-1", "train-2"]
    assert {"--zone=us-central1-a", "--machine-type=n2-standard-8", "--image-family=debian-12"} <= set(words)


def test_the_secret_is_on_no_command_line_and_does_not_stay(tmp_path: Path) -> None:
    script = gcloud_commands(RUN, TARGET)
    secrets = set()
    for _ in range(2):
        report = created(script, tmp_path)
        files, paths = report["files"], report["paths"]
        assert isinstance(files, dict)
        assert isinstance(paths, dict)
        secret = files["paceline-secret"]
        assert len(bytes.fromhex(secret)) == 32
        assert secret not in json.dumps(report["words"])
        assert not [path for path in paths.values() if Path(path).exists()]
        secrets.add(secret)
    assert len(secrets) == 2


def test_the_machine_starts_its_part_of_the_job(tmp_path: Path) -> None:
    report = created(gcloud_commands(RUN, TARGET), tmp_path)
    files = report["files"]
    assert isinstance(files, dict)
    startup = files["startup-script"]
    for folder in ("/run/paceline", "/opt/paceline", "/home/paceline"):
        (tmp_path / folder.strip("/")).parent.mkdir(parents=True, exist_ok=True)
        startup = startup.replace(folder, f"{tmp_path}{folder}")
    programs = tmp_path / "programs"
    for name in ("gcloud", "chown", "useradd", "systemd-run"):
        write_program(programs, name, RECORD)
    write_program(programs, "curl", CURL)
    write_program(programs, "install", INSTALL)
    (tmp_path / "opt/paceline").mkdir()
    write_program(tmp_path / "opt/paceline/bin", "paceline", PACELINE)
    path, record = tmp_path / "startup.sh", tmp_path / "record"
    path.write_text(startup)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "RECORD": str(record)}
    for _ in range(2):  # the script runs at every boot
        finished = subprocess.run(
            ["bash", path], env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, cwd=tmp_path
        )
        assert finished.returncode == 0, finished.stderr
    secret = tmp_path / "run/paceline/secret"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("c0ffee", 0o600)
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    calls = record.read_text().splitlines()
    assert f"gcloud storage rsync --recursive gs://bucket/code {tmp_path}/home/paceline/job" in calls
    [service] = {call for call in calls if call.startswith("systemd-run")}
    assert service.endswith(f"/bin/bash {tmp_path}/opt/paceline-job 2")
    assert "--uid=paceline" in service.split()
    job = tmp_path / "opt/paceline-job"
    assert job.stat().st_mode & 0o777 == 0o700
    told = json.loads(subprocess.run(["bash", job, "2"], capture_output=True, check=True, timeout=LIMIT_SECONDS).stdout)
    assert told["A"] == "b c"
    assert told["secret"] == "c0ffee"
    words = told["words"]
    assert words[-5:] == ["train.py", *RUN.arguments]
    for pair in (["--node-rank", "2"], ["--nnodes", "3"], ["--rendezvous", "train-0:29400"], ["--workers", "1"]):
        assert words[words.index(pair[0]) :][:2] == pair


def test_machines_with_gpus_get_tensorflow_for_them() -> None:
    family = {"image_family": "f", "image_project": "p", "zone": "us-central1-a", "name": "a"}
    with_gpus = gcloud_commands(SMALL, GcloudTarget(machine_type="g2-standard-8", **family))
    assert "pip install --quiet 'paceline[gpu]'" in with_gpus
    assert "--maintenance-policy=TERMINATE" in with_gpus
    without = gcloud_commands(SMALL, GcloudTarget(machine_type="n2-standard-8", **family))
    assert "pip install --quiet 'paceline[cpu]'" in without
    assert "nvidia" not in without


def test_a_secret_of_secret_manager_is_read_by_the_machines(tmp_path: Path) -> None:
    target = GcloudTarget(name="a", zone="us-central1-a", machine_type="n2-standard-8", secret_name="ours")
    report = created(gcloud_commands(SMALL, target), tmp_path)
    files, words = report["files"], report["words"]
    assert isinstance(files, dict)
    assert isinstance(words, list)
    assert files.keys() == {"startup-script"}
    assert "gcloud secrets versions access latest --secret=ours | install" in files["startup-script"]
    assert "--scopes=cloud-platform" in words


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the whole text is compared below
        GcloudTarget(
            name="A", zone="here", machine_type="a b", project="-", image_family="_", accelerator="t4", scopes="a b",
            boot_disk_size="big", network="_", port=0, code="ftp://x", package="--index-url x", working_dir="x",
            secret_name="a/b", setup=("\ud800",),
        )  # fmt: skip
    assert {line.split(":")[0] for line in str(raised.value).splitlines()} == {
        "--name", "--zone", "--machine-type", "--project", "--image-family", "--accelerator", "--scopes",
        "--boot-disk-size", "--network", "--port", "--code", "--package", "--working-dir", "--secret-name", "--setup",
    }  # fmt: skip
    place = {"zone": "us-central1-a", "machine_type": "n2-standard-8"}
    target = GcloudTarget(**place, image_family="a", secret_name="b", scopes="storage-rw")
    with pytest.raises(ConfigurationError, match=r"(?s)--image-family: .*--scopes: "):
        gcloud_commands(FULL, target)


def test_gpus_need_an_image_with_their_driver() -> None:
    with pytest.raises(ConfigurationError, match="--image-family: received nothing; expected an image with NVIDIA"):
        gcloud_commands(SMALL, GcloudTarget(name="a", zone="us-central1-a", machine_type="a2-highgpu-1g"))
