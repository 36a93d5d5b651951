"""The sdist is the whole project, and the wheel runs without it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LIMIT_SECONDS = 120

SAMPLE = (
    "tests/test_layers.py",
    "tests/cluster/test_tf_config_page.py",
    "tests/examples/test_pairs.py",
    "tests/cli/test_reference.py",
    "tests/cli/test_documented_commands.py::test_commands_are_found",
    "tests/project/test_project_files.py",
)
"""Quick tests that read, beside the package, files of each kind: docs, examples, benchmarks, the Makefile, .github."""

JOB = """
import numpy
import paceline
from paceline.comm.world import current_world

rank = numpy.array([paceline.rank() + 1.0])
print(paceline.rank(), paceline.__file__, current_world().group.all_reduce(rank)[0])
"""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]


def finished(command: Sequence[str | Path], folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command that ended well, and knows nothing of this repository."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TF_CONFIG")}
    result = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def build(target: str, source: Path, folder: Path) -> Path:
    """The sdist or the wheel of the project in `source`, made as `pip` would, but with the hatchling that is here."""
    finished((sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder), source)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", REPOSITORY, folder / "made")) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.glob("paceline-*")
    return project


def test_the_sdist_is_all_that_git_tracks_and_nothing_else(unpacked: Path) -> None:
    """It lacked examples, docs and the Makefile, without which the tests in it fail."""
    if not (REPOSITORY / ".git").exists() or shutil.which("git") is None:
        pytest.skip("git, which knows the project's files, is not here: an unpacked sdist, or a bare machine")
    ls_files = ("git", "-c", f"safe.directory={REPOSITORY}", "ls-files")  # CI may run as another user
    tracked = set(finished(ls_files, REPOSITORY).stdout.splitlines())
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert tracked - there == set()
    untracked = set(finished((*ls_files, "--others", "--exclude-standard"), REPOSITORY).stdout.splitlines())
    assert there - tracked - untracked == {"PKG-INFO"}


def test_the_tests_of_the_sdist_pass(unpacked: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SAMPLE)
    result = finished(command, unpacked, PYTHONPATH=str(unpacked / "src"))
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


def test_the_wheel_runs_from_a_fresh_environment(unpacked: Path, tmp_path: Path) -> None:
    wheel = build("wheel", unpacked, tmp_path / "made")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        assert "paceline/py.typed" in archive.namelist()
    assert tops == {"paceline", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}
    environment = tmp_path / "fresh"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    finished((*pip, "install", "--no-deps", "--no-index", "--quiet", wheel), tmp_path)
    (packages,) = environment.glob("lib/python*/site-packages")
    # What Paceline depends on, without downloading it again; a .pth file's folders come after the environment's own.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    paceline = environment / "bin" / "paceline"
    assert finished((paceline, "version"), tmp_path).stdout.startswith("paceline 0.")
    (tmp_path / "job.py").write_text(JOB)
    # mpi4py looks for mpich's library beside the Python that runs.
    libmpi = next(Path(sys.prefix, "lib").glob("libmpi.so.*"), None)
    variables = {} if libmpi is None else {"MPI4PY_LIBMPI": str(libmpi)}
    lines = finished((paceline, "run", "--workers", "2", "job.py"), tmp_path, **variables).stdout.splitlines()
    assert sorted(lines) == [f"[{rank}] {rank} {packages / 'paceline' / '__init__.py'} 3.0" for rank in (0, 1)]


def test_the_image_gets_all_that_the_package_is_built_from(tmp_path: Path) -> None:
    """No image is built here (that takes a daemon and a network); its COPY lines are carried out on a folder."""
    copies = [line.split()[1:] for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if line[:5] == "COPY "]
    ignored = {line.rstrip("/") for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[:1] != "#"}
    assert {".git", ".venv"} <= ignored
    source = tmp_path / "image"
    source.mkdir()
    for *names, _ in copies:
        for name in names:
            assert name not in ignored
            (source / name).symlink_to(REPOSITORY / name)
    assert build("wheel", source, tmp_path / "made").suffix == ".whl"
