"""Who has the keyboard: the only worker of a job, or the rank that is debugged. The others are told what to do.

paceline run --debug-rank 1      rank 1   input(), breakpoint(), pdb: as in any Python program
                                 others   breakpoint() and pdb.set_trace() do nothing, and the next collective waits
paceline run --debug-port 5678   rank 0   waits for a debugger before the script begins
"""

import builtins
import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.errors import ConfigurationError
from paceline.importing import after_import
from paceline.observe.failure import no_keyboard

_LOGGER = logging.getLogger("paceline")

LOOPBACK = "127.0.0.1"
"""A debugger runs any code that it is sent, without asking who sends it: nobody of another host may."""

_NO_WARNINGS = "PYDEVD_DISABLE_FILE_VALIDATION"
"""Without it debugpy says at length that breakpoints in Python's own frozen modules are not seen."""


def arrange_keyboard(rank: int, num_ranks: int, variables: Mapping[str, str]) -> None:
    """Does for this rank what the options say; waits for a debugger if it is to.

    PYTHONBREAKPOINT still names another debugger, one that needs no terminal.

    Raises:
        ConfigurationError: nothing can listen at the port.
    """
    options = read_variables(JobOptions, variables, "debug_rank", "debug_port")
    if rank == options.debug_rank:
        if options.debug_port is not None:
            _await_debugger(rank, options.debug_port)
        return
    if num_ranks == 1:
        return
    _take_keyboard(num_ranks, options.debug_rank)


def _await_debugger(rank: int, port: int) -> None:
    os.environ.setdefault(_NO_WARNINGS, "1")
    import debugpy  # the launcher has looked for it

    try:
        debugpy.listen((LOOPBACK, port))
    except (OSError, RuntimeError) as fault:
        raise ConfigurationError(
            f"--debug-port: rank {rank} cannot listen at {LOOPBACK}:{port} ({fault}). Fix: take a port that is free. "
            "[debug]"
        ) from None
    _LOGGER.warning("rank %d waits for a debugger at %s:%d", rank, LOOPBACK, port)
    debugpy.wait_for_client()


def _take_keyboard(num_ranks: int, debugged: int | None) -> None:
    """From now on `input()` and `breakpoint()` say what to do; where another rank is debugged, only that one stops."""
    no_input = no_keyboard(num_ranks)
    if debugged is not None:
        no_input = (
            f"rank {debugged} has the keyboard (--debug-rank), and this rank cannot read it. Call input() under "
            f"`if paceline.rank() == {debugged}:` [no-keyboard]"
        )

    def refuse_input(prompt: object = "", /) -> str:
        del prompt
        raise EOFError(no_input)

    def other_breakpoint(*args: Any, **kwargs: Any) -> Any:
        if os.environ.get("PYTHONBREAKPOINT"):
            return sys.__breakpointhook__(*args, **kwargs)
        if debugged is not None:
            return None
        raise RuntimeError(no_keyboard(num_ranks))

    builtins.input = refuse_input
    sys.breakpointhook = other_breakpoint
    if debugged is not None:
        after_import("pdb", _without_stops)


def _without_stops(pdb: ModuleType) -> None:
    pdb.set_trace = lambda *_, **__: None  # type: ignore[attr-defined]


def reads_nothing() -> bool:
    """Whether stdin is the null device, as for a worker without the keyboard."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(0), os.stat(os.devnull))  # noqa: PTH116  # no path needs to be made
    return True
