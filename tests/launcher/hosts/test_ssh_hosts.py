from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.launcher.hosts.ssh_hosts import forwarded_environment, working_directory


@pytest.mark.parametrize(
    ("variables", "wanted", "expected"),
    [
        ({"HOME": "/h", "PATH": "/bin", "LANG": "C"}, [], {}),
        ({"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}, [], "all"),
        ({"UCX_TLS": "tcp", "MPIR_CVAR_CH4_OFI_ENABLE": "0", "PACELINE_OF_SCRIPT": "1"}, [], "all"),
        ({"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}, [], "all"),
        ({"TF_CONFIG": "{}", "PACELINE_RANK": "3", "PACELINE_JOB_ID": "a", "PACELINE_AGENT_FD": "4"}, [], {}),
        ({"PACELINE_SECRET_FILE": "/s", "PACELINE_NODE_RANK": "1", "PACELINE_RENDEZVOUS": "a:1"}, [], {}),
        ({"DATA": "/d", "X": "1", "EMPTY": ""}, ["DATA", "EMPTY"], {"DATA": "/d", "EMPTY": ""}),
    ],
)
def test_what_travels(variables: dict[str, str], wanted: list[str], expected: dict[str, str] | str):
    assert forwarded_environment(variables, wanted) == (variables if expected == "all" else expected)


@given(st.dictionaries(st.text("ABCPTF_", min_size=1, max_size=9), st.text(max_size=3)))
def test_nothing_travels_that_is_not_known_or_named(variables: dict[str, str]):
    assert forwarded_environment(variables, []).items() <= variables.items()
    assert forwarded_environment(variables, list(variables)) == variables


def test_the_folder_has_the_users_name_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    monkeypatch.chdir(link)
    assert working_directory({"PWD": str(link)}) == str(link)
    for stale in ({"PWD": str(tmp_path)}, {"PWD": "/does/not/exist"}, {"PWD": "link"}, {}):
        assert working_directory(stale) == str(real)
