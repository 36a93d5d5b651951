"""A pod of a Kubernetes Indexed Job behind a headless Service: no operator, no list of addresses. Pure.

    JOB_COMPLETION_INDEX=1  (Kubernetes sets it)     PACELINE_NNODES=3
    PACELINE_RENDEZVOUS=train-0.train:29500          ─► train-0.train:29500, train-1.train:29500, train-2.train:29500

The pods of such a Job are named after the Job and their index, and their Service gives each name an address as soon as
the pod runs; so the address of one is the pattern of all.
"""

import re
from collections.abc import Mapping

from paceline.cluster import job_options
from paceline.cluster.address_text import read_address
from paceline.cluster.spec import WORKER, Address, ClusterSpec, Task
from paceline.cluster.value_checks import Fault, FaultList, shown

_INDEX = "JOB_COMPLETION_INDEX"
_WHOLE = re.compile(r"[0-9]{1,9}")
_MAX_NODES = 65_536
_FIRST_POD = re.compile(r"(?P<job>[^.]+)-0(?P<service>\..+)?")


def kubernetes_place(variables: Mapping[str, str]) -> tuple[ClusterSpec, Task] | None:
    """The pods of the Indexed Job as workers, and this one; None elsewhere.

    Without PACELINE_NNODES and PACELINE_RENDEZVOUS the pods have nothing to do with each other (each may take its share
    of a sweep), and with PACELINE_NNODES=1 there is one: None, too.

    Variables read: JOB_COMPLETION_INDEX, PACELINE_NNODES, PACELINE_RENDEZVOUS.

    >>> spec, task = kubernetes_place({
    ...     "JOB_COMPLETION_INDEX": "1", "PACELINE_NNODES": "2", "PACELINE_RENDEZVOUS": "train-0.pods:29500",
    ... })
    >>> spec.as_dict(), str(task)
    ({'worker': ['train-0.pods:29500', 'train-1.pods:29500']}, 'worker 1')

    Raises:
        ConfigurationError: variables are missing or contradict each other; the message has every fault.
    """
    names = (job_options.NNODES, job_options.RENDEZVOUS)
    if not variables.get(_INDEX) or not any(variables.get(name) for name in names):
        return None
    faults = FaultList("the environment of this pod", "[scheduler]")
    nnodes = _number(variables, job_options.NNODES, faults, "the Job's completions")
    if nnodes == 1:
        return None
    index = _number(variables, _INDEX, faults, "what an Indexed Job sets (spec.completionMode: Indexed)")
    if nnodes is not None and not 1 < nnodes <= _MAX_NODES:
        expected = f"a number of pods from 1 to {_MAX_NODES}"
        faults.add(job_options.NNODES, str(nnodes), expected, "write the Job's completions")
    if None not in (nnodes, index) and index >= nnodes:  # type: ignore[operator]  # neither is None
        fix = f"set {job_options.NNODES} to the Job's completions, and parallelism to the same"
        faults.add(_INDEX, str(index), f"a number below {job_options.NNODES}, which is {nnodes}", fix)
    first = _first_pod(variables.get(job_options.RENDEZVOUS, ""), faults)
    if faults or nnodes is None or index is None or first is None:
        raise faults.error()
    job, service, port = first
    return ClusterSpec({WORKER: tuple(Address(f"{job}-{i}{service}", port) for i in range(nnodes))}), Task(
        WORKER, index
    )


def _number(variables: Mapping[str, str], name: str, faults: FaultList, meaning: str) -> int | None:
    text = variables.get(name, "").strip()
    if _WHOLE.fullmatch(text) is None:
        faults.add(name, shown(text) if text else "nothing", "a whole number", f"set it to {meaning}")
        return None
    return int(text)


def _first_pod(text: str, faults: FaultList) -> tuple[str, str, int] | None:
    """Job name, the rest of the host's name, and port, from the address of the first pod."""
    fix = 'write JOB-0.SERVICE:PORT, such as "train-0.train:29500"'
    expected = "the address of the pod with index 0, whose first label ends in -0"
    if not text:
        faults.add(job_options.RENDEZVOUS, "nothing", expected, fix)
        return None
    address = read_address(job_options.RENDEZVOUS, text)
    if isinstance(address, Fault):
        faults.append(address)
        return None
    match = _FIRST_POD.fullmatch(address.host)
    if match is None:
        faults.add(job_options.RENDEZVOUS, shown(text), expected, fix)
        return None
    return match["job"], match["service"] or "", address.port
