"""Functions that a user's own loop gives to a coordinator's `schedule`: those that call Python are refused, and what
they raise is told once.

TensorFlow finds the function of a `tf.py_function` in a table of the process that has built the graph. A worker is
another process: there the call fails in words that do not say so, or silently returns nothing.
"""

import logging
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from paceline.strategy import compat

_LOGGER = logging.getLogger("paceline")

PYTHON_CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""The types of the operations that call Python."""


def operations_of(graph: Any) -> Iterator[tuple[str, str]]:
    """Name and type of all operations of a graph, also of the functions that it calls."""
    definition = graph.as_graph_def(add_shapes=False)
    yield from ((node.name, node.op) for node in definition.node)
    for function in definition.library.function:
        yield from ((node.name, node.op) for node in function.node_def)


def refuse_python(coordinator: Any) -> None:
    """From now on `coordinator.schedule` raises a `ValueError` for a function that calls Python, and schedules nothing.

    Args:
        coordinator: A `ClusterCoordinator` whose workers are other processes.
    """
    queue, known = compat.queue_of(coordinator), WeakSet[Any]()
    own_put = queue.put

    def put(closure: Any, *args: Any, **kwargs: Any) -> Any:
        function = compat.graph_function_of(closure)
        if function is not None and function not in known:
            if any(types in PYTHON_CALLS for _, types in operations_of(function.graph)):
                raise ValueError(
                    f"the scheduled function {function.graph.name!r} calls Python (tf.py_function or "
                    "tf.numpy_function), but runs on workers, which do not have the script's functions. Use "
                    "TensorFlow's operations there, or call Python in the chief, before that. [python-in-step]"
                )
            known.add(function)
        return own_put(closure, *args, **kwargs)

    queue.put = put


def tell_each_fault_once() -> None:
    """From now on the coordinator's log has nothing of what `schedule` and `join` raise, or Paceline says."""
    logging.getLogger("tensorflow").addFilter(_without_faults)


_faults: list[int] = []
"""Of the scheduled functions that have failed, and of which nobody was told yet."""


def _without_faults(record: logging.LogRecord) -> bool:
    """The coordinator logs what it then raises, several times over, whole; `schedule` and `join` raise the first.

    Of the others, their number is said. Who is lost is said in a line of Paceline's.
    """
    fault = compat.fault_told_by(record)
    if fault is None:
        return True
    if record.levelno < logging.ERROR or compat.is_loss_of_process(fault):
        return False
    if id(fault) not in _faults:
        _faults.append(id(fault))
        return False
    others = len(_faults) - 1  # now the first is raised
    _faults.clear()
    if others:
        _LOGGER.warning(
            "%d more scheduled function%s failed. The first failure is raised; `fetch` of what `schedule` returned "
            "raises the others",
            others,
            "s have" if others > 1 else " has",
        )
    return False
