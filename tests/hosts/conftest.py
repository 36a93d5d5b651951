"""Labs for the tests of this folder. On CI a machine where no lab can be made is a failure, elsewhere a skip."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import secure_shell
import slurm_site
import trained
from lab import Lab, why_not

from programs import run_python


@pytest.fixture(scope="session")
def may_make_hosts() -> None:
    """Skips, or on CI fails, where namespaces may not be made."""
    _need(why_not(), "hosts")


@pytest.fixture(scope="session")
def may_make_secure_hosts(may_make_hosts: None) -> None:
    """Skips, or on CI fails, where there is no OpenSSH server either."""
    _need(secure_shell.why_not(), "hosts with ssh")


@pytest.fixture(scope="module")
def two_hosts(may_make_hosts: None) -> Iterator[Lab]:
    """alpha and beta, shared by the tests of a file: they leave them as they were."""
    with Lab(2) as lab:
        yield lab


@pytest.fixture(scope="module")
def two_secure_hosts(may_make_secure_hosts: None) -> Iterator[Lab]:
    """alpha and beta with an OpenSSH server each, shared by the tests of a file."""
    with Lab(2, ssh=True) as lab:
        yield lab


@pytest.fixture
def own_two_hosts(may_make_hosts: None) -> Iterator[Lab]:
    """alpha and beta for one test, which may break them."""
    with Lab(2) as lab:
        yield lab


@pytest.fixture(scope="module")
def slurm(may_make_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_site.SlurmSite]:
    """A Slurm of two nodes, alpha and beta, for the tests of a file."""
    _need(slurm_site.why_not(), "Slurm")
    with Lab(2) as lab:
        yield slurm_site.SlurmSite(lab, tmp_path_factory.mktemp("slurm"))


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one plain process learns with `trains_on_hosts.py`."""
    folder = tmp_path_factory.mktemp("alone")
    ended = run_python(trained.SCRIPT, folder, "alone", folder=folder)
    assert ended.code == 0, ended.output
    return trained.read_rank(folder, 0)


def _need(why_not: str, what: str) -> None:
    if not why_not:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to make {what}: {why_not}")
    pytest.skip(f"{what} cannot be made here: {why_not}")
