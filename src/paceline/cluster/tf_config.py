"""TF_CONFIG, TensorFlow's own contract, read into a `ClusterSpec` and this process's `Task`. Pure.

What TensorFlow accepts and can train with is accepted and means the same (see its ``TFConfigClusterResolver``
and ``multi_worker_util``): a `chief` comes before the workers and may be alone, an index may be a string of
digits, tasks may be a map from index to address, other keys are ignored. What it accepts to its users' harm
is refused: it trains alone where `cluster` is missing, reads the indices 1.5 and `true` as 1, and is silent
about an address that is listed twice. All faults are told together.

First `cluster`, which task types there are, with the address of each task; then `task`, which of them this process is.
"""

import re
from collections.abc import Mapping

from paceline.cluster import environment
from paceline.cluster.address_text import read_address
from paceline.cluster.json_text import EXAMPLE_VALUE, JsonObject, load_json
from paceline.cluster.spec import CHIEF, ROLES, WORKER, Address, ClusterSpec, Task
from paceline.cluster.value_checks import Fault, FaultList, shown

_CLUSTER_EXAMPLE = '"cluster": {"worker": ["host0:2222", "host1:2222"]}'
_TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}'
_TYPES = ", ".join(ROLES)
_DIGITS = re.compile(r"[0-9]{1,9}")

_Tasks = tuple[Address | None, ...]
"""The addresses of one task type; None stands for one that is faulty."""


def read_tf_config(variables: Mapping[str, str]) -> tuple[ClusterSpec, Task] | None:
    """The cluster and the own task that the environment names; None where it names no job.

    As in TensorFlow, an absent TF_CONFIG, ``{}``, and one with neither cluster nor task mean a process that
    trains by itself. So does an empty text.

    Variables read: TF_CONFIG.

    Raises:
        ConfigurationError: TF_CONFIG is wrong; the message has every fault.
    """
    text = variables.get(environment.TF_CONFIG, "")
    if not text.strip():
        return None
    value = load_json(environment.TF_CONFIG, text)
    if isinstance(value, JsonObject) and all(value.get(key) in (None, {}) for key in ("cluster", "task")):
        return None
    return _read(value)


def parse_tf_config(text: str) -> tuple[ClusterSpec, Task]:
    """The cluster and the own task in the `text` of TF_CONFIG.

    >>> text = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    >>> spec, task = parse_tf_config(text)
    >>> spec.world_size, str(task)
    (1, 'worker 0')

    Raises:
        ConfigurationError: `text` is wrong; the message has every fault. Nothing else, whatever the text.
    """
    return _read(load_json(environment.TF_CONFIG, text))


def _read(value: object) -> tuple[ClusterSpec, Task]:
    faults = FaultList(environment.TF_CONFIG, "[tf-config]")
    if not isinstance(value, JsonObject):
        encoded_twice = isinstance(value, str) and value.lstrip().startswith("{")
        fix = "encode it once: this is JSON inside JSON" if encoded_twice else f"write {EXAMPLE_VALUE}"
        faults.add("the whole value", shown(value), "an object with `cluster` and `task`", fix)
        raise faults.error()
    for key in value.repeated_keys:
        if key in ("cluster", "task"):
            faults.add(key, "this key more than once", "it once", "keep one: JSON keeps only the last")
    addresses = _read_cluster(value.get("cluster"), faults)
    sizes = {type_: None if tasks is None else len(tasks) for type_, tasks in addresses.items()}
    task = _read_task(value.get("task"), sizes, faults)
    if faults or task is None:
        raise faults.error()
    return ClusterSpec({type_: tuple(filter(None, tasks or ())) for type_, tasks in addresses.items()}), task


def _read_cluster(value: object, faults: FaultList) -> Mapping[str, _Tasks | None]:
    """The tasks of each type that `value` names; None for a type that cannot be read. Adds to `faults`."""
    if not isinstance(value, JsonObject) or not value:
        received = "nothing" if value is None else shown(value)
        faults.add("cluster", received, "an object with the addresses of each task type", f"add {_CLUSTER_EXAMPLE}")
        return {}
    for key in value.repeated_keys:
        faults.add(_field(key), "this key more than once", "it once", "join the two lists")
    cluster = {type_: _read_tasks(type_, tasks, faults) for type_, tasks in value.items()}
    if all(type_ in ROLES and not ROLES[type_].in_world for type_ in cluster):
        expected = f'also a "{WORKER}" or a "{CHIEF}", which train'
        faults.add("cluster", f"only {shown(sorted(cluster))}", expected, f"add {_CLUSTER_EXAMPLE}")
    _refuse_shared_addresses(cluster, faults)
    return cluster


def _renaming(type_: str) -> str:
    """How to correct the unknown task type `type_`, as an instruction."""
    if type_ == "master":
        return f'rename it to "{CHIEF}", as TensorFlow 2 calls it'
    lowered = type_.strip().lower()
    for known in (lowered, lowered.removesuffix("s")):
        if known in ROLES:
            return f'rename it to "{known}"'
    return f'rename it, to "{WORKER}" for processes that train'


def _field(type_: str) -> str:
    return f"cluster.{type_}" if type_.isascii() and type_.isidentifier() else f"cluster[{shown(type_)}]"


def _read_tasks(type_: str, value: object, faults: FaultList) -> _Tasks | None:
    field = _field(type_)
    if type_ not in ROLES:
        faults.add(field, f"the task type {shown(type_)}", f"one of {', '.join(ROLES)}", _renaming(type_))
        return None
    if not ROLES[type_].in_cluster:
        expected = f"no {type_} here, because it stands outside the training cluster"
        fix = f'remove it; the {type_}\'s own process has "task": {{"type": "{type_}", "index": 0}}'
        faults.add(field, shown(value), expected, fix)
        return None
    entries = _read_entries(type_, value, faults)
    if entries is None:
        return None
    if not entries:
        faults.add(field, shown(value), "at least one address", f'add one, or leave "{type_}" out')
    if type_ == CHIEF and len(entries) > 1:
        fix = f'keep one and list the others under "{WORKER}"'
        faults.add(field, f"{len(entries)} addresses", "one chief at most", fix)
    tasks = []
    for index, entry in enumerate(entries):
        address = read_address(f"{field}[{index}]", entry)
        if isinstance(address, Fault):
            faults.append(address)
        tasks.append(address if isinstance(address, Address) else None)
    return tuple(tasks)


def _read_entries(type_: str, value: object, faults: FaultList) -> list[object] | None:
    """The entries in the order of their indices, from a list or from a map of indices."""
    field = _field(type_)
    if isinstance(value, list):
        return value
    if not isinstance(value, JsonObject):
        meant = shown(re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else ["host0:2222"])
        faults.add(field, shown(value), "a list of addresses", f'write "{type_}": {meant}')
        return None
    for key in value.repeated_keys:
        faults.add(f"{field}[{key}]", "this index more than once", "it once", "keep one")
    indices = [str(index) for index in range(len(value))]
    if set(value) != set(indices):
        fix = f'name the address of every {type_}, best as a list: ["host0:2222", "host1:2222"]'
        faults.add(field, f"the indices {shown(list(value))}", "the indices from 0 on without a gap", fix)
        return None
    return [value[index] for index in indices]


def _refuse_shared_addresses(cluster: Mapping[str, _Tasks | None], faults: FaultList) -> None:
    owners: dict[tuple[str, int], str] = {}
    for type_, tasks in cluster.items():
        for index, address in enumerate(tasks or ()):
            if address is None:
                continue
            field = f"{_field(type_)}[{index}]"
            owner = owners.setdefault((_comparable(address.host), address.port), field)
            if owner != field:
                fix = "give each task its own port, or its own host"
                faults.add(field, shown(str(address)), f"another address than that of {owner}", fix)


def _comparable(host: str) -> str:
    """Two spellings of one host, made equal as far as that is possible without resolving names."""
    lowered = host.lower().rstrip(".")
    return "127.0.0.1" if lowered == "localhost" else lowered


def _read_task(value: object, sizes: Mapping[str, int | None], faults: FaultList) -> Task | None:
    """The task that `value` names, or None after adding to `faults`.

    Args:
        value: what TF_CONFIG has under `task`.
        sizes: how many tasks of each type the cluster has (None: unreadable); empty: no readable cluster.
        faults: where faults go.
    """
    if not isinstance(value, JsonObject):
        received = "nothing" if value is None else shown(value)
        faults.add("task", received, "an object that says which task this process is", f"add {_TASK_EXAMPLE}")
        return None
    for key in value.repeated_keys:
        if key in ("type", "index"):
            faults.add(f"task.{key}", "this key more than once", "it once", "keep one")
    type_ = _read_type(value.get("type"), sizes, faults)
    index = _read_index(value.get("index"), type_, sizes.get(type_ or ""), faults)
    return None if type_ is None or index is None else Task(type_, index)


def _read_type(value: object, sizes: Mapping[str, int | None], faults: FaultList) -> str | None:
    if value is None:
        faults.add("task.type", "nothing", f"one of {_TYPES}", f"add it, as in {_TASK_EXAMPLE}")
        return None
    if not isinstance(value, str):
        faults.add("task.type", shown(value), f"one of {_TYPES}", f"write it as in {_TASK_EXAMPLE}")
        return None
    if value not in ROLES:
        faults.add("task.type", shown(value), f"one of {_TYPES}", _renaming(value))
        return None
    known_only = set(sizes) <= set(ROLES)  # else the missing type is probably the misspelt one
    if sizes and known_only and value not in sizes and ROLES[value].in_cluster:
        expected = f"a type that this cluster has: {shown(sorted(sizes))}"
        fix = f'correct the type, or add "{value}" with its addresses to `cluster`'
        faults.add("task.type", shown(value), expected, fix)
    return value


def _read_index(value: object, type_: str | None, size: int | None, faults: FaultList) -> int | None:
    expected = _expected_index(type_, size)
    if value is None:
        faults.add("task.index", "nothing", expected, f"add it, as in {_TASK_EXAMPLE}")
        return None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        index = int(value)  # TensorFlow reads "1" as 1, and scripts pass shell variables on as text
    elif isinstance(value, int) and not isinstance(value, bool):
        index = value
    else:
        faults.add("task.index", shown(value), expected, f"write a plain number, as in {_TASK_EXAMPLE}")
        return None
    if index < 0:
        faults.add("task.index", shown(value), expected, "count the tasks of each type from 0")
        return None
    if size and index >= size:
        fix = f"correct the index, or add this task's address to cluster.{type_}: indices count from 0"
        faults.add("task.index", shown(value), expected, fix)
        return None
    return index


def _expected_index(type_: str | None, size: int | None) -> str:
    if not size:
        return "an integer from 0 on"
    return f"0, for the only {type_}" if size == 1 else f"an integer from 0 to {size - 1}"
