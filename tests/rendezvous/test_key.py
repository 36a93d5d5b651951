import pytest

from paceline.cluster.spec import Address, ClusterSpec
from paceline.errors import ConfigurationError
from paceline.rendezvous.key import cluster_digest, described_key, job_key

ONE = ClusterSpec({"worker": (Address("a", 1), Address("b", 1)), "chief": (Address("c", 1),)})
SAME = ClusterSpec({"chief": (Address("c", 1),), "worker": (Address("a", 1), Address("b", 1))})
OTHER = ClusterSpec({"worker": (Address("b", 1), Address("a", 1)), "chief": (Address("c", 1),)})


def test_without_a_secret_the_cluster_is_the_key():
    assert job_key(ONE, {}) == job_key(SAME, {}) != job_key(OTHER, {})
    assert cluster_digest(ONE) == cluster_digest(SAME) != cluster_digest(OTHER)


def test_a_secret_file_is_the_key_whatever_the_cluster(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("one\n")
    secret.chmod(0o600)
    variables = {"PACELINE_SECRET_FILE": str(secret)}
    first = job_key(ONE, variables)
    assert first == job_key(OTHER, variables)
    assert first != job_key(ONE, {})
    secret.write_text("two")
    assert job_key(ONE, variables) != first


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_secret_that_others_may_read_is_refused(tmp_path, mode):
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"permissions {mode:03o}.*chmod 600"):
        job_key(ONE, {"PACELINE_SECRET_FILE": str(secret)})


def test_a_secret_that_is_missing_or_empty_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file"):
        job_key(ONE, {"PACELINE_SECRET_FILE": str(tmp_path / "none")})
    with pytest.raises(ConfigurationError, match="directory"):
        job_key(ONE, {"PACELINE_SECRET_FILE": str(tmp_path)})
    empty = tmp_path / "empty"
    empty.touch(mode=0o600)
    empty.chmod(0o600)
    with pytest.raises(ConfigurationError, match="is empty"):
        job_key(ONE, {"PACELINE_SECRET_FILE": str(empty)})


def test_a_secret_that_is_required_and_absent_is_refused_with_how_to_make_one():
    with pytest.raises(ConfigurationError, match=r"--secret-file \(PACELINE_SECRET_FILE\) is not set.*umask 077"):
        job_key(ONE, {"PACELINE_REQUIRE_SECRET": "1"})


@pytest.mark.parametrize(("hosts", "warns"), [(["a"], True), (["127.0.0.1", "::1", "localhost"], False), ([], False)])
def test_without_a_secret_peers_on_a_network_are_warned_about_once(caplog, hosts, warns):
    described_key(b"nodes 2 a:1", hosts, {})
    assert [record.message for record in caplog.records if "has no secret" in record.message] == [
        record.message for record in caplog.records
    ]
    assert len(caplog.records) == warns
