"""The manifest's parts fit each other, its command arrives unchanged, and Paceline accepts the pods' secret."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from golden_files import FULL, SECRET, SMALL
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.spec import Address, ClusterSpec
from paceline.errors import ConfigurationError
from paceline.render.kubernetes import KubernetesTarget, kubernetes_manifest
from paceline.render.kubernetes_pod import unexpanded
from paceline.render.training_run import TrainingRun
from paceline.rendezvous.key import job_key

TARGET = KubernetesTarget(name="train", image="team/train:1.0")
CLUSTER = ClusterSpec({"worker": (Address("a", 1), Address("b", 1))})
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
LIMIT_SECONDS = 120


def objects(run: TrainingRun = SMALL, target: KubernetesTarget = TARGET) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(kubernetes_manifest(run, target, SECRET))}


def pod(run: TrainingRun = SMALL, target: KubernetesTarget = TARGET) -> dict[str, Any]:
    spec: dict[str, Any] = objects(run, target)["Job"]["spec"]["template"]["spec"]
    return spec


def container(run: TrainingRun = SMALL, target: KubernetesTarget = TARGET) -> dict[str, Any]:
    [only] = pod(run, target)["containers"]
    return dict(only)


def expanded(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of a container's command and variables: ``$(NAME)`` its value, ``$$`` a dollar sign."""
    result, rest = "", text
    while rest:
        if rest.startswith("$$"):
            result, rest = result + "$", rest[2:]
        elif rest.startswith("$(") and ")" in rest:
            name, _, rest = rest[2:].partition(")")
            result += variables.get(name, f"$({name})")
        else:
            result, rest = result + rest[0], rest[1:]
    return result


@given(TEXTS)
def test_kubernetes_changes_no_text(text: str) -> None:
    assert expanded(unexpanded(text), {"HOME": "/root", "": "x"}) == text


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXTS | st.sampled_from(["1e3", "y", "null", "0o17", "$(HOME)", "$$", "1:30", "---", "\ufeff"])))
def test_arguments_arrive_unchanged(arguments: list[str]) -> None:
    run = TrainingRun(script="train.py", arguments=tuple(arguments), variables={})
    words = container(run)["command"]
    assert [expanded(word, {"HOME": "/root"}) for word in words][-len(arguments) - 1 :] == ["train.py", *arguments]


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), TEXTS))
def test_variables_arrive_unchanged(variables: dict[str, str]) -> None:
    rows = container(TrainingRun(script="train.py", variables=dict(variables)))["env"]
    assert {row["name"]: expanded(row["value"], {}) for row in rows}.items() >= variables.items()


def test_the_pods_find_each_other() -> None:
    parts = objects()
    job, service = parts["Job"], parts["Service"]
    template = job["spec"]["template"]
    variables = {row["name"]: row["value"] for row in container()["env"]}
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    port = service["spec"]["ports"][0]["port"]
    assert variables["PACELINE_RENDEZVOUS"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}:{port}"
    assert int(variables["PACELINE_NNODES"]) == job["spec"]["completions"] == job["spec"]["parallelism"] == 2


def test_only_pods_of_this_job_may_connect() -> None:
    parts = objects()
    policy = parts["NetworkPolicy"]["spec"]
    labels = parts["Job"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"] == [{"from": [{"podSelector": policy["podSelector"]}]}]
    assert "NetworkPolicy" not in objects(target=KubernetesTarget(name="a", image="b", network_policy=False))


def test_a_secret_that_exists_is_used_and_none_written() -> None:
    target = KubernetesTarget(name="train", image="b", secret_name="ours")
    assert "Secret" not in objects(target=target)
    assert SECRET not in kubernetes_manifest(SMALL, target, SECRET)
    [mounted] = [volume for volume in pod(target=target)["volumes"] if volume["name"] == "secret"]
    assert mounted["secret"]["secretName"] == "ours"


def test_the_training_container_never_sees_the_mounted_secret() -> None:
    assert "secret" not in [mount["name"] for mount in container()["volumeMounts"]]


def test_paceline_accepts_the_copy_of_the_secret(tmp_path: Path) -> None:
    """The kubelet mounts a link to a file of root, readable by all; the first container's command copies it."""
    source, target = tmp_path / "source", tmp_path / "own"
    (source / "..data").mkdir(parents=True)
    target.mkdir()
    target.chmod(0o777)
    (source / "..data" / "secret").write_text(SECRET)
    (source / "..data" / "secret").chmod(0o444)
    (source / "secret").symlink_to("..data/secret")
    [first] = pod()["initContainers"]
    places = {mount["name"]: mount["mountPath"] for mount in first["volumeMounts"]}
    command = [
        word.replace(places["secret"], str(source)).replace(places["own-secret"], str(target))
        for word in first["command"]
    ]
    for _ in range(2):  # Kubernetes may run it again
        subprocess.run(command, check=True, timeout=LIMIT_SECONDS, umask=0o022)
    variables = {row["name"]: row["value"] for row in container()["env"]}
    path = Path(variables["PACELINE_SECRET_FILE"].replace(places["own-secret"], str(target)))
    assert path.read_text() == SECRET
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_uid == os.geteuid()
    job_key(CLUSTER, {"PACELINE_SECRET_FILE": str(path)})
    with pytest.raises(ConfigurationError):
        job_key(CLUSTER, {"PACELINE_SECRET_FILE": str(source / "secret")})


def test_a_preempted_pod_comes_back_and_a_wrong_command_line_does_not() -> None:
    spec = objects(FULL)["Job"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # what a podFailurePolicy asks for
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (3, 0)
    actions = {}
    for rule in spec["podFailurePolicy"]["rules"]:
        for code in rule.get("onExitCodes", {"values": ["disrupted"]})["values"]:
            actions[code] = rule["action"]
    assert actions == {75: "Ignore", "disrupted": "Ignore", 2: "FailJob", 78: "FailJob"}


def test_memory_is_shared_and_limits_are_requests() -> None:
    target = KubernetesTarget(name="a", image="b", cpu="500m", memory="4Gi", gpus=2, shm_size="1Gi")
    limits = {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": 2}
    assert container(target=target)["resources"] == {"requests": limits, "limits": limits}
    [shm] = [volume for volume in pod(target=target)["volumes"] if volume["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container(target=target)["volumeMounts"]
    assert "resources" not in container()


def test_the_last_pods_name_must_fit() -> None:
    name = "a" * 61
    kubernetes_manifest(SMALL, KubernetesTarget(name=name, image="b"), SECRET)
    with pytest.raises(ConfigurationError, match="shorten it"):
        kubernetes_manifest(FULL, KubernetesTarget(name=name, image="b"), SECRET)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the whole text is compared below
        KubernetesTarget(
            name="1e3", image="a b", namespace="A", gpus=-1, cpu="0", memory="8GB", shm_size="x", port=80,
            secret_name="_", volume=("data",), node_selector=("a",), working_dir="here",
        )  # fmt: skip
    assert sorted(line.split(":")[0] for line in str(raised.value).splitlines()) == sorted(
        ["--name", "--image", "--namespace", "--gpus", "--cpu", "--memory", "--shm-size", "--port",
         "--secret-name", "--volume", "--node-selector", "--working-dir"]
    )  # fmt: skip
    target = KubernetesTarget(name="a", image="b", volume=("a:/dev/shm",))
    with pytest.raises(ConfigurationError, match=r"(?s)--env: .*--volume: "):
        kubernetes_manifest(TrainingRun(script="train.py", variables={"1": ""}), target, SECRET)
