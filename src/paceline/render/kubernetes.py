"""Kubernetes without an operator: an Indexed Job, its headless Service, its Secret and who may connect.

Pods of an Indexed Job have the stable names ``<job>-<index>``, and a headless Service makes them resolve, also before
they are ready. Kubernetes replaces a lost pod under the same name and index, and it takes its place in the group again.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import ClassVar

from paceline.cluster.options import OptionTable, option
from paceline.cluster.value_checks import Fault, Grammar, Range, refuse_any, shown
from paceline.errors import EXIT_CONFIGURATION, EXIT_PREEMPTED, EXIT_USAGE
from paceline.render.kubernetes_pod import CONTAINER, PATHS_IN_USE, SECRET_KEY, pod_template
from paceline.render.training_run import ABSOLUTE_PATH, HOST_LABEL, PORT, TrainingRun

START_TIMEOUT_SECONDS = 900.0
"""Without ``--start-timeout``: nodes may have to be added, and images be pulled."""

_MAX_HOST_LABEL_CHARACTERS = 63
_MAX_DEFAULT_CHARACTERS = 50
"""Of a name that nobody has chosen: room for the numbers of the pods."""

_WORD = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_LABEL = Grammar(_WORD, "lower-case letters, digits and '-', at most 63", "team-a", 63)
"""RFC 1123, a namespace for one."""

_SUBDOMAIN = Grammar(rf"{_WORD}(\.{_WORD})*", "lower-case letters, digits, '-' and '.'", "my-secret")
"""RFC 1123: of Secrets and PersistentVolumeClaims."""

_VOLUME = Grammar(rf"{_WORD}(\.{_WORD})*:/[^:\x00-\x1f]*", "CLAIM:PATH with an absolute path", "my-claim:/data", 4096)

_IMAGE = Grammar(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?",
    "the name of a container image",
    "registry.example.com/team/train:1.0",
    512,
)

_QUANTITY = Grammar(
    r"(?=.*[1-9])([0-9]+(\.[0-9]+)?|\.[0-9]+)(m|k|[MGTPE]|[KMGTPE]i|[eE][0-9]+)?",
    "a quantity of Kubernetes above 0",
    "8Gi (memory) or 500m (processors)",
    32,
)

_SELECTOR = Grammar(
    rf"({_WORD}(\.{_WORD})*/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?"
    r"=([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?",
    "KEY=VALUE of a node's label",
    "cloud.google.com/gke-accelerator=nvidia-l4",
    400,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesTarget(OptionTable):
    """Where and with what the pods run: the options of ``paceline render kubernetes``."""

    PREFIX: ClassVar[str] = "KUBERNETES_"

    name: str | None = option(
        None,
        "The name of the Job and the beginning of the names of its pods. Default: the name of the script.",
        metavar="NAME",
        check=HOST_LABEL,
    )
    image: str = option(..., "The container image, with Paceline installed.", metavar="IMAGE", check=_IMAGE)
    namespace: str | None = option(
        None, "The namespace. Default: the one that kubectl uses.", metavar="NAME", check=_LABEL
    )
    gpus: int = option(0, "GPUs of each pod.", metavar="N", check=Range("a number from 0 on", "1", lowest=0))
    cpu: str | None = option(None, "Processors of each pod, as 8 or 500m.", metavar="QUANTITY", check=_QUANTITY)
    memory: str | None = option(None, "Memory of each pod, as 32Gi.", metavar="QUANTITY", check=_QUANTITY)
    shm_size: str = option(
        "2Gi", "How much of the memory of a pod may be shared memory.", metavar="QUANTITY", check=_QUANTITY
    )
    volume: tuple[str, ...] = option(
        (),
        "Mount the PersistentVolumeClaim at PATH in every pod; repeat for more.",
        metavar="CLAIM:PATH",
        check=_VOLUME,
    )
    node_selector: tuple[str, ...] = option(
        (), "A label that nodes must have; repeat for more.", metavar="KEY=VALUE", check=_SELECTOR
    )
    secret_name: str | None = option(
        None,
        "An existing Secret with the entry 'secret'. Default: the manifest contains a new Secret.",
        metavar="NAME",
        check=_SUBDOMAIN,
    )
    network_policy: bool = option(True, "Whether only pods of this job may connect to its pods.")
    port: int = option(29400, "The port on the first host at which the hosts connect.", metavar="PORT", check=PORT)
    working_dir: str | None = option(
        None, "The working directory of the script on the hosts.", metavar="FOLDER", check=ABSOLUTE_PATH
    )

    def faults(self, nnodes: int) -> Iterator[Fault]:
        """Everything that is wrong with these values for `nnodes` pods."""
        paths = [volume.partition(":")[2].rstrip("/") for volume in self.volume]
        taken = [path for path in paths if paths.count(path) > 1 or path in PATHS_IN_USE]
        if taken:
            yield Fault("--volume", shown(taken), "paths that nothing else has", "choose others, such as /data")
        last_pod = f"{self.name}-{max(nnodes, 1) - 1}"
        if len(self.name or "") <= _MAX_HOST_LABEL_CHARACTERS < len(last_pod):
            expected = f"a name so short that the last pod's, {last_pod}, has at most 63 characters"
            yield Fault("--name", shown(self.name), expected, "shorten it")


def name_after(program: str) -> str:
    """A name for the job of a script, or of a module, that Kubernetes accepts.

    >>> name_after("jobs/2_Train_MNIST.py"), name_after("mypackage.train"), name_after("7.py")
    ('train-mnist', 'train', 'paceline')
    """
    last = PurePosixPath(program).name.removesuffix(".py").rpartition(".")[2]
    words = re.sub(r"[^a-z0-9]+", "-", last.lower())
    return re.sub(r"^[^a-z]+", "", words)[:_MAX_DEFAULT_CHARACTERS].rstrip("-") or "paceline"


def kubernetes_manifest(run: TrainingRun, target: KubernetesTarget, secret: str) -> str:
    """The manifest, for ``kubectl apply -f``; `secret` is written into it unless the target names one.

    Raises:
        ConfigurationError: names everything that is wrong with the values.
    """
    from paceline.render.yaml_text import documents  # slow to load, and no part of the options and their help

    target = replace(target, name=target.name or name_after(run.script))
    refuse_any("the command line", "[option]", (*run.faults(), *target.faults(run.nnodes)))
    run = run.with_start_timeout(START_TIMEOUT_SECONDS)
    objects = [_service(target), _job(run, target)]
    if target.network_policy:
        objects.insert(0, _network_policy(target))
    if target.secret_name is None:
        objects.insert(0, _secret(target, secret))
    return f"# Made by `paceline render kubernetes`. Start it with: kubectl apply -f FILE\n{documents(objects)}"


def _secret(target: KubernetesTarget, secret: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(target),
        "type": "Opaque",
        "stringData": {SECRET_KEY: secret},
    }


def _network_policy(target: KubernetesTarget) -> dict[str, object]:
    """MPI's own ports know no secret: other pods must not reach them."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(target),
        "spec": {
            "podSelector": {"matchLabels": _labels(target)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": _labels(target)}}]}],
        },
    }


def _service(target: KubernetesTarget) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(target),
        "spec": {
            "clusterIP": "None",
            # Ranks look for each other before any pod is ready.
            "publishNotReadyAddresses": True,
            "selector": _labels(target),
            "ports": [{"name": "rendezvous", "port": target.port}],
        },
    }


def _job(run: TrainingRun, target: KubernetesTarget) -> dict[str, object]:
    def exit_codes(action: str, *codes: int) -> dict[str, object]:
        rule = {"containerName": CONTAINER, "operator": "In", "values": sorted(codes)}
        return {"action": action, "onExitCodes": rule}

    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(target),
        "spec": {
            "completionMode": "Indexed",
            "completions": run.nnodes,
            "parallelism": run.nnodes,
            # A pod that fails is replaced as often as a generation is, and a host that is lost for good ends the job.
            "backoffLimitPerIndex": run.options.max_restarts,
            "maxFailedIndexes": 0,
            "podFailurePolicy": {
                "rules": [
                    exit_codes("Ignore", EXIT_PREEMPTED),
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    # Another pod would fail the same way.
                    exit_codes("FailJob", EXIT_USAGE, EXIT_CONFIGURATION),
                ]
            },
            "template": pod_template(
                run,
                labels=_labels(target),
                image=target.image,
                service=str(target.name),
                rendezvous=f"{target.name}-0.{target.name}:{target.port}",
                port=target.port,
                secret_name=target.secret_name or str(target.name),
                limits=_limits(target),
                shm_size=target.shm_size,
                volumes=[(claim, path) for claim, _, path in (volume.partition(":") for volume in target.volume)],
                node_selector=dict(pair.split("=", 1) for pair in target.node_selector),
                working_dir=target.working_dir,
            ),
        },
    }


def _limits(target: KubernetesTarget) -> dict[str, object]:
    return {
        **({"cpu": target.cpu} if target.cpu else {}),
        **({"memory": target.memory} if target.memory else {}),
        **({"nvidia.com/gpu": target.gpus} if target.gpus else {}),
    }


def _labels(target: KubernetesTarget) -> dict[str, object]:
    return {"app.kubernetes.io/name": "paceline", "app.kubernetes.io/instance": target.name}


def _metadata(target: KubernetesTarget) -> dict[str, object]:
    namespace = {"namespace": target.namespace} if target.namespace else {}
    return {"name": target.name, **namespace, "labels": _labels(target)}
