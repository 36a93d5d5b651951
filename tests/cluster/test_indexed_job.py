"""Pods of an Indexed Job behind a headless Service."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.indexed_job import kubernetes_place
from paceline.cluster.spec import Task
from paceline.errors import ConfigurationError

NAMES = ("JOB_COMPLETION_INDEX", "PACELINE_NNODES", "PACELINE_RENDEZVOUS")


def pod(
    index: str | None = "1", nnodes: str | None = "3", rendezvous: str | None = "train-0.pods:29500"
) -> dict[str, str]:
    """A pod's environment as far as it matters, with what Kubernetes sets for every pod."""
    variables = dict(zip(NAMES, (index, nnodes, rendezvous), strict=True))
    always = {"HOSTNAME": "train-1", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_PORT": "tcp://10.96.0.1:443"}
    return always | {name: value for name, value in variables.items() if value is not None}


@pytest.mark.parametrize(
    ("rendezvous", "last"),
    [
        ("train-0.pods:29500", "train-2.pods:29500"),
        ("train-0.pods.team-0.svc.cluster.local:29500", "train-2.pods.team-0.svc.cluster.local:29500"),
        ("my-job-0.svc:1024", "my-job-2.svc:1024"),
        ("train-0:29500", "train-2:29500"),  # a Job that sets the pods' search domain
    ],
)
def test_the_first_address_is_the_pattern_of_all(rendezvous: str, last: str) -> None:
    place = kubernetes_place(pod(rendezvous=rendezvous))
    assert place is not None
    spec, task = place
    assert task == Task("worker", 1)
    addresses = spec.as_dict()["worker"]
    assert (len(addresses), addresses[0], addresses[2]) == (3, rendezvous, last)


@pytest.mark.parametrize(
    "variables",
    [{}, pod(index=None), pod(nnodes=None, rendezvous=None), pod(nnodes="1", index="0")],
    ids=["no Job", "no index", "pods of a sweep", "one pod"],
)
def test_nothing_to_join(variables: dict[str, str]) -> None:
    assert kubernetes_place(variables) is None


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (pod(nnodes=None), ["PACELINE_NNODES: received nothing"]),
        (pod(rendezvous=None), ["PACELINE_RENDEZVOUS: received nothing", "train-0.train:29500"]),
        (pod(rendezvous="train.pods:29500"), ['received "train.pods:29500"', "ends in -0"]),
        (pod(rendezvous="train-0.pods"), ["add the port"]),
        (pod(rendezvous="10.0.0.7:29500"), ["ends in -0"]),
        (pod(index="3"), ["JOB_COMPLETION_INDEX: received 3; expected a number below PACELINE_NNODES, which is 3"]),
        (
            pod(index="x", nnodes="y", rendezvous="z"),
            ["JOB_COMPLETION_INDEX", "PACELINE_NNODES", "PACELINE_RENDEZVOUS"],
        ),
        (pod(nnodes="0"), ["a number of pods from 1"]),
        (pod(nnodes="999999999"), ["a number of pods from 1"]),
    ],
)
def test_says_what_is_wrong(variables: dict[str, str], said: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        kubernetes_place(variables)
    for part in said:
        assert part in str(raised.value)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), st.text() | st.text("train-0.:123"), max_size=3))
def test_any_values(changes: dict[str, str]) -> None:
    try:
        place = kubernetes_place(pod() | changes)
    except ConfigurationError as error:
        str(error).encode()
    else:
        assert place is None or place[1] in place[0].training_tasks
