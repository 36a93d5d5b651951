"""Which clusters a ParameterServerStrategy takes, and where their open ports are refused."""

import pytest

from paceline.cluster.job_options import JobOptions
from paceline.cluster.server_cluster import (
    checked_server_cluster,
    open_servers,
    refuse_beside_servers,
    refuse_open_servers,
)
from paceline.cluster.spec import Address, ClusterSpec, Task
from paceline.errors import ConfigurationError

CHIEF = Task("chief", 0)


def cluster_of(*roles: str, host: str = "127.0.0.1") -> ClusterSpec:
    return ClusterSpec({role: (Address(host, 1000 + number),) for number, role in enumerate(roles)})


def test_a_whole_cluster_is_taken():
    place = (cluster_of("chief", "worker", "ps"), CHIEF)
    assert checked_server_cluster(place, is_launched=False) == place


@pytest.mark.parametrize(
    ("roles", "missing"),
    [
        (("chief", "worker"), "has no ps. Add the address in"),
        (("chief", "ps"), "has no worker. Add the address in"),
        (("worker", "ps"), "has no chief. Add the address in"),
        (("worker",), "has no chief and no ps. Add the addresses in"),
    ],
)
def test_who_is_missing_is_named(roles: tuple[str, ...], missing: str):
    with pytest.raises(ConfigurationError) as refusal:
        checked_server_cluster((cluster_of(*roles), Task(roles[0], 0)), is_launched=False)
    assert f"but the cluster in TF_CONFIG {missing} the TF_CONFIG of every process" in str(refusal.value)
    assert str(refusal.value).endswith("`paceline run --workers 2 --ps 1`. [no-servers]")


def test_without_a_cluster_the_command_is_told():
    with pytest.raises(ConfigurationError, match=r"but this process has no TF_CONFIG\. Start the script"):
        checked_server_cluster(None, is_launched=False)
    with pytest.raises(ConfigurationError, match=r"but this job was started without --ps\. Start it"):
        checked_server_cluster((cluster_of("worker"), Task("worker", 0)), is_launched=True)


def test_another_strategy_beside_servers_is_refused():
    refuse_beside_servers(None, "OneDeviceStrategy")
    refuse_beside_servers((cluster_of("chief", "worker"), CHIEF), "OneDeviceStrategy")
    refuse_beside_servers((cluster_of("chief", "worker", "ps"), Task("evaluator", 0)), "EvaluatingStrategy")
    with pytest.raises(ConfigurationError, match=r"\(--ps 1\), but its script trains under a OneDeviceStr"):
        refuse_beside_servers((cluster_of("chief", "worker", "ps"), CHIEF), "OneDeviceStrategy")


def test_servers_that_other_hosts_reach_are_warned_of_and_refused_where_a_secret_is_required():
    required = {"PACELINE_REQUIRE_SECRET": "1"}
    assert not open_servers(cluster_of("chief", "worker", "ps"), required)
    assert not open_servers(cluster_of("chief", "worker", "ps", host="localhost"), required)
    assert open_servers(cluster_of("chief", "worker", "ps", host="10.0.0.1"), {})
    with pytest.raises(ConfigurationError, match=r"on all interfaces .* leave --require-secret out\. \[secret\]$"):
        open_servers(cluster_of("chief", "worker", "ps", host="10.0.0.1"), required)
    with pytest.raises(ConfigurationError, match=r"^--require-secret"):
        refuse_open_servers(JobOptions(require_secret=True))
