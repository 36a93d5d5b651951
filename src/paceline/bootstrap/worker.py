"""A launched worker's life: prepare the process, run the user's script in it, leave in order or in a hurry.

prepare ─► script ─┬─ came to its end ─► tell, meet the others, leave MPI, exit 0
                   └─ failed ──────────► tell the agent what and where, exit at once: waiting for the others in
                                         MPI_Finalize would hang, since they wait in a collective for this rank
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from paceline.bootstrap.communication import arrange_communication
from paceline.bootstrap.cores import bind_to_cores
from paceline.bootstrap.drop_in import serve_distribute_names
from paceline.bootstrap.script import run_script
from paceline.comm.world import World, current_world
from paceline.data.seeds import agree_seeds
from paceline.observe.failure import describe
from paceline.observe.rank_logging import log_with_rank

_EXIT_INTERRUPTED = 130


def run_worker(arguments: Sequence[str]) -> NoReturn:
    """Runs the script or module that `arguments` name, as this world's worker; does not return.

    Args:
        arguments: ``[script, *args]`` or ``["-m", module, *args]``.
    """
    bind_to_cores(os.environ)
    world = current_world()
    log_with_rank(world.rank, world.size)
    agree_seeds(world.identity.seed)
    try:
        arrange_communication(world, os.environ)
        serve_distribute_names(os.environ)
        run_script(arguments)
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            _leave_failed(world, leaving)
    except KeyboardInterrupt:
        _flush()
        os._exit(_EXIT_INTERRUPTED)
    except BaseException as error:
        _leave_failed(world, error)
    _leave(world)


def _leave(world: World) -> NoReturn:
    """In order: exit handlers and threads of the script first, then the group."""
    try:
        import atexit
        import threading

        threading._shutdown()  # type: ignore[attr-defined]  # joins the script's threads, as the interpreter would
        atexit._run_exitfuncs()
        world.finish()
    except BaseException as error:
        _leave_failed(world, error)
    _flush()
    # TensorFlow's and MPI's destructors have nothing left to do and can take seconds, or crash.
    os._exit(0)


def _leave_failed(world: World, error: BaseException) -> NoReturn:
    report = describe(error, world.fatal)
    _flush()
    world.fail(report)
    os._exit(report.exit_code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the script has closed it, or the reader is gone
            stream.flush()
