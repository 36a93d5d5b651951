import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from paceline.launcher.hosts.host_facts import differences, mismatch_text, script_digest
from paceline.rendezvous.agent_messages import HostFacts
from paceline.wire.versions import NOT_INSTALLED, installed_versions

A = HostFacts("a", "m1", 1, 0, 2, 1, {"Python": "3.11.7", "Keras": "3.13"}, "t.py 00ff", ("-x",), (1,), (), 0)


def test_versions_are_found_without_importing_anything():
    before = set(sys.modules)
    versions = installed_versions()
    assert versions["Python"].startswith("3.")
    assert versions["Paceline"] != NOT_INSTALLED
    assert {"tensorflow", "keras"} & (set(sys.modules) - before) == set()


def test_equal_scripts_have_equal_digests(tmp_path: Path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text("x = 1\n")
    first, second = (script_digest(str(tmp_path / folder / "train.py"), is_module=False) for folder in ("a", "b"))
    assert first == second
    assert first.startswith("train.py ")
    (tmp_path / "b" / "train.py").write_text("x = 2\n")
    assert script_digest(str(tmp_path / "b" / "train.py"), is_module=False) != first


def test_a_folder_is_its_main(tmp_path: Path):
    (tmp_path / "__main__.py").write_text("x = 1\n")
    assert script_digest(str(tmp_path), is_module=False).startswith(f"{tmp_path.name} ")


def test_a_module_beside_is_hashed_and_one_in_a_package_only_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("x = 1\n")
    assert script_digest("train", is_module=True).startswith("train ")
    assert script_digest("package.train", is_module=True) == "package.train"
    assert script_digest("no_such_module_anywhere", is_module=True) == "no_such_module_anywhere"


def test_a_script_that_is_missing(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        script_digest(str(tmp_path / "none.py"), is_module=False)


def other(**changes: object) -> HostFacts:
    return replace(A, **{"hostname": "b", "machine_id": "m2", "pid": 2, "node_rank": 1, **changes})


def test_hosts_that_run_the_same_may_differ_in_everything_else():
    assert differences([A]) == differences([A, other(num_workers=3, ports=(5, 6, 7))]) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"versions": {"Python": "3.12.1", "Keras": "3.13"}}, "Python is 3.12.1 on b, 3.11.7 on a"),
        ({"versions": {"Python": "3.11.7"}}, "Keras is absent on b, 3.13 on a"),
        ({"versions": {**A.versions, "MPICH": "5"}}, "MPICH is 5 on b, absent on a"),
        ({"script": "t.py 1234"}, "the script is t.py 1234 on b, t.py 00ff on a"),
        ({"arguments": ()}, "the script's command line is none on b, -x on a"),
        ({"num_nodes": 3}, "--nnodes is 3 on b, 2 on a"),
    ],
)
def test_each_difference_has_both_values_and_hosts(changes: dict[str, object], expected: str):
    assert differences([A, other(**changes)]) == (expected,)


def test_all_differences_of_all_hosts_are_told():
    found = differences([A, other(script="s 1", num_nodes=3), other(hostname="c", arguments=("-y",))])
    assert len(found) == 3
    text = mismatch_text(found)
    assert all(one in text for one in found)
    assert "--allow-mismatch" in text


def test_over_ssh_there_is_no_number_of_nodes_to_compare():
    assert differences([replace(A, num_nodes=None), other(num_nodes=None)]) == ()
