"""The pod of a Kubernetes Job: one agent, its workers, shared memory, and the secret as Paceline accepts it."""

from collections.abc import Mapping, Sequence

from paceline.cluster import job_options
from paceline.render.training_run import TrainingRun

CONTAINER = "paceline"
SECRET_KEY = "secret"
"""The entry of the Secret that holds the job's secret."""

GRACE_SECONDS = 60
"""Between SIGTERM and SIGKILL: a snapshot is written meanwhile."""

_SECRET_SOURCE = "/var/run/paceline-secret"
_SECRET_FOLDER = "/run/paceline"
_COPY_THE_SECRET = f"umask 077 && cat {_SECRET_SOURCE}/{SECRET_KEY} > {_SECRET_FOLDER}/{SECRET_KEY}"

PATHS_IN_USE = (_SECRET_FOLDER, "/dev/shm", "")

_COPYING_LIMITS = {"cpu": "100m", "memory": "64Mi"}


def pod_template(
    run: TrainingRun,
    *,
    labels: Mapping[str, object],
    image: str,
    service: str,
    rendezvous: str,
    port: int,
    secret_name: str,
    limits: Mapping[str, object],
    shm_size: str,
    volumes: Sequence[tuple[str, str]],
    node_selector: Mapping[str, str],
    working_dir: str | None,
) -> dict[str, object]:
    """The Job's ``template``.

    A mounted Secret belongs to root, is a symbolic link, and is open to its group as soon as the pod has an
    ``fsGroup``; Paceline takes only a file that its own user owns and nobody else may read. So a container that runs
    before, as the same user, copies it into memory; the container that trains never sees the mounted one.
    """
    variables = {
        job_options.NNODES: str(run.nnodes),
        job_options.RENDEZVOUS: rendezvous,
        job_options.SECRET_FILE: f"{_SECRET_FOLDER}/{SECRET_KEY}",
        **run.given_variables(),
    }
    own_secret = {"name": "own-secret", "mountPath": _SECRET_FOLDER}
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "restartPolicy": "Never",
            "subdomain": service,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            # Somebody must collect the processes that a script leaves behind; the first process of a pod does.
            "shareProcessNamespace": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"nodeSelector": dict(node_selector)} if node_selector else {}),
            "initContainers": [
                {
                    "name": "secret",
                    "image": image,
                    "command": ["sh", "-c", _COPY_THE_SECRET],
                    "resources": {"requests": _COPYING_LIMITS, "limits": _COPYING_LIMITS},
                    "securityContext": {"allowPrivilegeEscalation": False},
                    "volumeMounts": [
                        {"name": "secret", "mountPath": _SECRET_SOURCE, "readOnly": True},
                        own_secret,
                    ],
                }
            ],
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "command": [unexpanded(word) for word in run.command()],
                    **({"workingDir": working_dir} if working_dir else {}),
                    "env": [{"name": name, "value": unexpanded(value)} for name, value in variables.items()],
                    "ports": [{"name": "rendezvous", "containerPort": port}],
                    **({"resources": {"requests": dict(limits), "limits": dict(limits)}} if limits else {}),
                    "securityContext": {"allowPrivilegeEscalation": False},
                    "volumeMounts": [
                        own_secret,
                        {"name": "shm", "mountPath": "/dev/shm"},
                        *({"name": f"claim-{i}", "mountPath": path} for i, (_, path) in enumerate(volumes)),
                    ],
                }
            ],
            "volumes": [
                {
                    "name": "secret",
                    # 0444: inside the container that copies it, whose user we do not know; nobody else sees it.
                    "secret": {"secretName": secret_name, "items": _items(), "defaultMode": 0o444},
                },
                {"name": "own-secret", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shm_size}},
                *(
                    {"name": f"claim-{i}", "persistentVolumeClaim": {"claimName": claim}}
                    for i, (claim, _) in enumerate(volumes)
                ),
            ],
        },
    }


def unexpanded(text: str) -> str:
    """`text` so that Kubernetes, which puts variables in place of ``$(NAME)`` and ``$`` in place of ``$$``, leaves it.

    >>> unexpanded("$(HOME) costs $5")
    '$$(HOME) costs $$5'
    """
    return text.replace("$", "$$")


def _items() -> list[dict[str, str]]:
    return [{"key": SECRET_KEY, "path": SECRET_KEY}]
