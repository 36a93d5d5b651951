"""What is rendered is what was reviewed, and the tools that read it understand it."""

import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from golden_files import CASES, FOLDER

LIMIT_SECONDS = 60
SCRIPTS = sorted(name for name in CASES if name.endswith(".sh"))
MANIFESTS = sorted(name for name in CASES if name.endswith(".yaml"))

OLDEST_KUBERNETES = "1.31"
"""Where the last of the Job's fields that we use became stable."""


def test_every_file_has_its_case() -> None:
    assert {path.name for path in FOLDER.iterdir()} == CASES.keys()


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_is_rendered_was_reviewed(name: str) -> None:
    """If a change was meant: ``.venv/bin/python tests/render/golden_files.py``, and read the difference."""
    assert CASES[name]() == (FOLDER / name).read_bytes().decode()


@pytest.mark.parametrize("name", SCRIPTS)
def test_bash_understands_the_scripts(name: str) -> None:
    checked = subprocess.run(["bash", "-n", FOLDER / name], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (checked.returncode, checked.stderr) == (0, "")


def _shellcheck(script: Path) -> str:
    command = [Path(sys.executable).parent / "shellcheck", "--shell=bash", "--severity=style", script]
    # 1091: what `source` names is on another machine; 1003 and 2016: users' quotes and dollar signs are theirs.
    checked = subprocess.run(
        [*command, "--exclude=1003,1091,2016"], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    return checked.stdout + checked.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name: str) -> None:
    assert _shellcheck(FOLDER / name) == ""


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name.startswith("gcloud")])
def test_shellcheck_finds_nothing_in_what_the_machines_run(name: str, tmp_path: Path) -> None:
    """A here-document is only text to the check above."""
    whole = (FOLDER / name).read_text()
    startup = whole.split("<<'END_OF_STARTUP_SCRIPT'\n")[1].split("\nEND_OF_STARTUP_SCRIPT\n")[0] + "\n"
    job = "#!/bin/bash\n" + startup.split("<<'END_OF_JOB'\n")[1].split("\nEND_OF_JOB\n")[0] + "\n"
    for number, text in enumerate((startup, job)):
        path = tmp_path / f"{number}.sh"
        path.write_text(text)
        assert _shellcheck(path) == ""


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_follow_the_schema_of_kubernetes(name: str, version: str) -> None:
    documents = list(yaml.safe_load_all((FOLDER / name).read_text()))
    assert "Job" in [document["kind"] for document in documents]
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schema_notices_a_wrong_word() -> None:
    [*_, job] = yaml.safe_load_all((FOLDER / MANIFESTS[0]).read_text())
    job["spec"]["completionmode"] = job["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, OLDEST_KUBERNETES, strict=True)
