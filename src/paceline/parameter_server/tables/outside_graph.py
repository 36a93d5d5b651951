"""Runs a function apart from the step that is being traced."""

import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


def outside_graph(function: Callable[[], _Result]) -> _Result:
    """Calls `function` in a thread of its own, where there is no strategy, no graph and no device, and waits for it.

    Raises:
        BaseException: what `function` raises.
    """
    results: list[_Result] = []
    faults: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=call, name="paceline apart")
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return results[0]
