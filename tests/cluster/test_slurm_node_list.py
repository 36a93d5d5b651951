"""Slurm's short forms for nodes and for tasks per node."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.slurm_node_list import MAX_NODES, expand_node_list, expand_tasks_per_node
from paceline.cluster.value_checks import Fault

unhurried = settings(deadline=None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("localhost", "localhost"),
        ("n1,n2", "n1 n2"),
        ("n[1-3]", "n1 n2 n3"),
        ("n[01-03,7],login1", "n01 n02 n03 n7 login1"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("gpu[1-2]-ib[3,5]", "gpu1-ib3 gpu1-ib5 gpu2-ib3 gpu2-ib5"),
        ("rack[0-1]n[00-01],n[01-03,7],gpu[2]-ib", "rack0n00 rack0n01 rack1n00 rack1n01 n01 n02 n03 n7 gpu2-ib"),
        ("a-b_c.d.example", "a-b_c.d.example"),
        ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
    ],
)
def test_expands_node_lists(text: str, names: str) -> None:
    assert expand_node_list("SLURM_NODELIST", text) == tuple(names.split())


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,",
        "n[",
        "n]",
        "n[]",
        "n[1",
        "n[1-]",
        "n[a-b]",
        "n[3-1]",
        "n[[1]]",
        "n[1,]",
        "n 1",
        "(null)",
        "n[000x133]",
    ],
)
def test_refuses_what_is_no_node_list(text: str) -> None:
    fault = expand_node_list("SLURM_NODELIST", text)
    assert isinstance(fault, Fault)
    assert (fault.field, "scontrol show hostnames" in fault.fix) == ("SLURM_NODELIST", True)


@pytest.mark.parametrize("text", ["n[1-999999999]", "n[1-99999]", "n[1-300]m[1-300]", ",".join(["n[1-60000]"] * 2)])
def test_a_broken_range_fills_no_memory(text: str) -> None:
    assert isinstance(expand_node_list("SLURM_NODELIST", text), Fault)


@unhurried
@given(st.text() | st.text("n0123456789[]-,"))
def test_any_text(text: str) -> None:
    found = expand_node_list("X", text)
    assert isinstance(found, Fault) or 1 <= len(found) <= MAX_NODES


@unhurried
@given(st.integers(0, 500), st.integers(0, 50), st.integers(1, 4))
def test_a_range_has_each_of_its_numbers_in_order(first: int, more: int, width: int) -> None:
    names = expand_node_list("X", f"n[{first:0{width}}-{first + more:0{width}}]")
    assert names == tuple(f"n{number:0{width}}" for number in range(first, first + more + 1))


@pytest.mark.parametrize(
    ("text", "counts"),
    [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("4,2,4", [4, 2, 4]), ("1(x2),3(x2)", [1, 1, 3, 3])],
)
def test_expands_tasks_per_node(text: str, counts: list[int]) -> None:
    assert expand_tasks_per_node("SLURM_TASKS_PER_NODE", text) == tuple(counts)


@pytest.mark.parametrize("text", ["", "x", "2(x", "2(x)", "2x3", "1,", "1(x999999)", "-1"])
def test_refuses_what_is_no_tasks_per_node(text: str) -> None:
    assert isinstance(expand_tasks_per_node("SLURM_TASKS_PER_NODE", text), Fault)


@unhurried
@given(st.text() | st.text("0123456789(x),"))
def test_any_tasks_per_node(text: str) -> None:
    found = expand_tasks_per_node("X", text)
    assert isinstance(found, Fault) or 1 <= len(found) <= MAX_NODES
