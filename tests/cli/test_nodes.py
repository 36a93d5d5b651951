"""Which node this host is: options, then a scheduler; every fault in one message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cli.host_options import nodes_of
from paceline.cluster.spec import Address
from paceline.errors import ConfigurationError


def test_without_a_word_about_nodes_this_host_is_the_only_one():
    assert nodes_of(None, None, None, {}) is None
    assert nodes_of(1, None, None, {}) is None
    assert nodes_of(1, 0, "a:1", {}) is None


def test_options():
    nodes = nodes_of(2, 1, "node0:29400", {})
    assert nodes is not None
    assert (nodes.num_nodes, nodes.node_rank, nodes.rendezvous) == (2, 1, Address("node0", 29400))


@pytest.mark.parametrize(
    ("given_", "variables", "faults"),
    [
        ((2, None, None), {}, ["--node-rank: received nothing", "--rendezvous: received nothing"]),
        ((None, 1, None), {}, ["--nnodes: received nothing", "--rendezvous: received nothing"]),
        ((None, None, "a:1"), {}, ["--nnodes: received nothing", "--node-rank: received nothing"]),
        ((2, 2, "a:1"), {}, ["--node-rank: received 2; expected 0 to 1, as --nnodes is 2"]),
        ((2, -1, "a:1"), {}, ["--node-rank: received -1; expected 0 to 1"]),
        ((2, 7, "a"), {}, ["--node-rank: received 7", '--rendezvous: received "a"; expected "host:port"']),
        ((2, 0, "a:70000"), {}, ['--rendezvous: received "a:70000"']),
        ((2, 0, "http://a:1"), {}, ["without a scheme"]),
        ((2, 0, ""), {}, ["--rendezvous"]),
    ],
)
def test_every_fault_in_one_message(given_, variables, faults):
    with pytest.raises(ConfigurationError) as caught:
        nodes_of(*given_, variables)
    lines = str(caught.value).splitlines()
    for fault in faults:
        assert any(fault in line for line in lines), f"{fault!r} is not in {lines}"
    assert len(lines) == len(set(lines))


@given(
    st.none() | st.integers(1, 4),
    st.none() | st.integers(-2, 4),
    st.none() | st.sampled_from(["a:1", "b", "", "[::1]:2", "a:0"]),
)
def test_whatever_is_given_there_is_a_place_or_a_message(nnodes, node_rank, rendezvous):
    try:
        nodes = nodes_of(nnodes, node_rank, rendezvous, {})
    except ConfigurationError:
        return
    if nodes is not None:
        assert 0 <= nodes.node_rank < nodes.num_nodes == nnodes


def test_the_key_comes_from_the_description_or_from_the_secret(tmp_path):
    def key(*given_: object, **variables: str) -> bytes:
        nodes = nodes_of(*given_, variables)
        assert nodes is not None
        return nodes.key

    assert key(2, 0, "127.0.0.1:1") == key(2, 1, "127.0.0.1:1")
    assert len({key(2, 0, "127.0.0.1:1"), key(3, 0, "127.0.0.1:1"), key(2, 0, "127.0.0.1:2")}) == 3
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    nodes = nodes_of(2, 1, "127.0.0.1:1", {"PACELINE_SECRET_FILE": str(secret)})
    assert nodes is not None
    assert nodes.key != key(2, 1, "127.0.0.1:1")


def test_a_secret_that_is_required_must_be_there():
    with pytest.raises(ConfigurationError, match="is not set"):
        nodes_of(2, 0, "127.0.0.1:1", {"PACELINE_REQUIRE_SECRET": "1"})


def test_node_0_alone_warns_about_a_job_without_a_secret(caplog):
    nodes_of(2, 1, "node0:1", {})
    assert not caplog.records
    nodes_of(2, 0, "node0:1", {})
    assert "has no secret" in caplog.text
