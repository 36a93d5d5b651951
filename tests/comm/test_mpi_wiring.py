"""What MPI is told before it starts, whoever started this process: `/dev/shm` is for the ranks of this host only."""

import logging
import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest

from paceline.cluster import environment
from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.mpi_launchers import announced_by_mpi
from paceline.cluster.spec import WORKER, Address, ClusterSpec, Task
from paceline.comm import by_hand
from paceline.comm.departure import Departure
from paceline.comm.mpi_wiring import MpiWiring
from paceline.comm.site_mpi import join_site_mpi

_DOCKERS_DEFAULT_BYTES = 64 << 20
_NUM_RANKS = 8


class _Wired(Exception):
    """Stops a join where it has made its wiring."""


def _stop(wiring: MpiWiring) -> NoReturn:
    raise _Wired(wiring)


def _by_hand(num_local: int, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = WorkerIdentity(Task(WORKER, 0), 0, _NUM_RANKS, 0, num_local, generation=1, job_id="a", seed=7)
    membership = SimpleNamespace(identity=identity, pmi_socket=SimpleNamespace(detach=lambda: 9))
    monkeypatch.setattr(by_hand, "join_by_hand", lambda *_: membership)
    monkeypatch.setattr(MpiWiring, "arm", _stop)
    cluster = ClusterSpec({WORKER: tuple(Address("127.0.0.1", 2222 + rank) for rank in range(_NUM_RANKS))})
    by_hand.join_world(cluster, Task(WORKER, 0), 1.0, {}, Departure())


def _by_mpiexec(num_local: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MpiWiring, "initialise", _stop)
    announced = announced_by_mpi({"PMI_RANK": "0", "PMI_SIZE": str(_NUM_RANKS), "MPI_LOCALNRANKS": str(num_local)})
    assert announced is not None
    join_site_mpi(announced, {}, {}, Departure())


@pytest.mark.parametrize("join", [_by_hand, _by_mpiexec])
@pytest.mark.parametrize(("num_local", "roomy"), [(1, True), (_NUM_RANKS, False)])
def test_pods_of_one_rank_need_room_for_one(
    join: Callable[[int, pytest.MonkeyPatch], None],
    num_local: int,
    roomy: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All ranks counted as this host's: 64 MB were too few for 8 pods, and RDMA was switched off."""
    with pytest.raises(_Wired) as caught:
        join(num_local, monkeypatch)
    (wiring,) = caught.value.args
    variables = {environment.FREE_SHARED_MEMORY: str(_DOCKERS_DEFAULT_BYTES)}
    monkeypatch.setattr(os, "environ", variables)
    mpi4py: Any = ModuleType("mpi4py")
    mpi4py.rc = SimpleNamespace()
    with caplog.at_level(logging.WARNING):
        wiring._before_initialisation(mpi4py)
    assert wiring.roomy is roomy
    assert ("UCX_TLS" in variables) is not roomy
    assert [f"{_NUM_RANKS} ranks of this host communicate over TCP" in text for text in caplog.messages] == [True] * (
        not roomy
    )
