"""A launched worker's life: prepare the process, run the user's script in it, leave in order or in a hurry.

prepare ─► script ─┬─ came to its end ─► tell, meet the others, leave MPI, exit 0
                   └─ failed ──────────► tell the agent what and where, exit at once: waiting for the others in
                                         MPI_Finalize would hang, since they wait in a collective for this rank
"""

import contextlib
import gc
import io
import logging
import os
import runpy
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from paceline.bootstrap.agent_line import listen_to_agent, wait_if_standby
from paceline.bootstrap.drop_in import serve_distribute_names
from paceline.bootstrap.keyboard import arrange_keyboard, reads_nothing
from paceline.bootstrap.tracker_runs import tell_of_runs
from paceline.cluster import environment
from paceline.cluster.communication import Communication, communication
from paceline.cluster.evaluator_task import is_evaluator
from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import launched_identity
from paceline.cluster.options import read_variables
from paceline.cluster.spec import DATA
from paceline.comm.world import World, current_world
from paceline.data.order.seeds import agree_seeds, draw_at_first_import_of_keras
from paceline.data.order.stage_orders import note_cores_before_binding
from paceline.errors import EXIT_INTERRUPTED
from paceline.importing import after_import, around_import
from paceline.leaving import flush_output, leave_script, run_exit_handlers
from paceline.observe.failure import (
    advise,
    describe,
    log_with_rank,
    write_stacks_of_crash,
    write_stacks_when_asked,
)
from paceline.observe.step_files import steps_of_timeline
from paceline.resilience.job_end import watch_for_job_end
from paceline.resilience.schedule import end_preemption

_LARGE = ("tensorflow", "keras")
"""Packages with so many objects that importing them is worth a pause of the garbage collector."""

_LOSS_SECONDS = 20.0
"""How long the launcher has to see that another process is lost. A host that is silent counts as lost after 10 s."""


def run_worker(arguments: Sequence[str]) -> NoReturn:
    """Runs the script or module that `arguments` name, as this world's worker; does not return.

    Args:
        arguments: ``[script, *args]`` or ``["-m", module, *args]``.
    """
    spare_imports()
    wait_if_standby()
    bind_to_cores(os.environ)
    world = current_world()
    listen_to_agent(world, os.environ)
    log_with_rank(world.rank, world.size)
    write_stacks_of_crash()
    write_stacks_when_asked()
    if _serves(os.environ):
        serve_launched(world)
    if is_evaluator(os.environ):
        watch_for_job_end()
    tell_of_runs(world)
    agree_seeds(world.identity.seed)
    after_import("tensorflow", lambda _: _prepare_tensorflow(world))
    pid = os.getpid()
    try:
        arrange_keyboard(world.rank, world.size, os.environ)
        arrange_communication(world, os.environ)
        serve_distribute_names(os.environ)
        draw_at_first_import_of_keras()
        run_script(arguments)
    except BaseException as error:
        if os.getpid() != pid:
            _leave_child(None if isinstance(error, SystemExit) and error.code in (None, 0) else error)
        _leave_after(world, error)
    if os.getpid() != pid:
        _leave_child(None)
    _leave(world)


def _serves(variables: Mapping[str, str]) -> bool:
    identity = launched_identity(variables)
    return identity is not None and identity.serves


def serve_launched(world: World) -> NoReturn:
    """Serves with TensorFlow's runtime in place of running the script, until the launcher ends this process."""
    try:
        if world.identity.task.type == DATA:
            from paceline.data.workers.data_worker import serve_data  # no rank needs it

            serve_data(world, os.environ)
        from paceline.strategy.serving import serve  # nor this

        assert world.place is not None
        serve(*world.place)
    except BaseException as error:
        _leave_failed(world, error)


def _prepare_tensorflow(world: World) -> None:
    from paceline.strategy.operation_seeds import use_job_seed
    from paceline.strategy.own_devices import name_own_devices

    use_job_seed(world.identity.seed)
    name_own_devices(world.place)
    if world.observed_in is not None and (steps := read_variables(JobOptions, os.environ, "timeline").timeline):
        from paceline.strategy.operation_timeline import keep_operations  # most jobs have none

        keep_operations(world, world.observed_in, steps_of_timeline(steps))


def _leave_after(world: World, error: BaseException) -> NoReturn:
    """Leaves as `error`, which ended the script, asks for."""
    end_preemption()
    if isinstance(error, KeyboardInterrupt):
        leave_script(EXIT_INTERRUPTED)
    if not isinstance(error, SystemExit) or error.code not in (None, 0):
        _leave_failed(world, error)
    _leave(world)


def _leave(world: World) -> NoReturn:
    """In order: exit handlers and threads of the script first, then the group."""
    end_preemption()
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # joins the script's threads, as the interpreter would
        run_exit_handlers()
        _tell_of_workers_apart(world)
        world.finish()
    except BaseException as error:
        _leave_failed(world, error)
    leave_script(0)


def _tell_of_workers_apart(world: World) -> None:
    """A loop that Paceline does not reach, such as one with an optimizer of its own, ends well: N times the same."""
    exchanges_itself = "mpi4py.MPI" in sys.modules and not world.formed
    if not world.is_chief or not world.has_lonely_gradients or world.has_combined or exchanges_itself:
        return
    logging.getLogger("paceline").warning(
        "each of the %d workers computed gradients in a loop of its own, and the workers never communicated. If "
        "that was training, there are now %d separate models. Train with model.fit, or call the step through "
        "strategy.run and sum its gradients over workers (docs/distribute_api.md). If the workers are meant to "
        "train separate models: paceline run --allow-independent. [independent]",
        world.size,
        world.size,
    )


def _leave_failed(world: World, error: BaseException) -> NoReturn:
    advise(error, world.size, has_keyboard=not reads_nothing())
    report = describe(error, world.fatal)
    flush_output()
    if world.fails_with_another(error):  # the launcher names that one as the cause, and ends this process
        time.sleep(_LOSS_SECONDS)
    world.fail(report)
    with contextlib.suppress(BaseException):  # the script's last words; the agent ends one that does not come to an end
        run_exit_handlers()
    leave_script(report.exit_code)


def _leave_child(error: BaseException | None) -> NoReturn:
    """The end of a process that the script has forked: it is no rank, and owes the group nothing."""
    if error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
    leave_script(0 if error is None else describe(error, None).exit_code)


def spare_imports() -> None:
    """From now on the first import of TensorFlow, and that of Keras, is not collected. Imports neither."""
    for name in _LARGE:
        around_import(name, without_collections)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Pauses the collector, and sets aside what is there at the end; a script that has turned it off is left alone.

    Importing Keras makes some 300,000 objects that live as long as the process. The collector would look through all of
    them again and again, which is an eighth of the import's time, and once more at each full collection later.
    """
    if not gc.isenabled():  # or inside such a block: Keras imports TensorFlow
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def bind_to_cores(variables: Mapping[str, str]) -> None:
    """Restricts this process, and every thread that it will start, to the cores in PACELINE_CPUS.

    Must run before a library starts threads. Where the system cannot bind (macOS) or the cores are gone, the worker
    runs unbound.
    """
    text = variables.get(environment.CPUS)
    if not text or not hasattr(os, "sched_setaffinity"):
        return
    note_cores_before_binding()
    try:
        os.sched_setaffinity(0, {int(core) for core in text.split(",")})
    except (OSError, ValueError):
        return


def arrange_communication(world: World, variables: Mapping[str, str]) -> None:
    """Arranges for what PACELINE_COMMUNICATION says, or for what fits this rank's device, when TensorFlow is imported.

    TensorFlow then knows of GPUs, and its own collectives must be set up before its first operation.

    Raises:
        ConfigurationError: the variable says something unknown.
    """
    communication(variables, num_gpus=0)
    if world.size == 1:
        return

    def choose(tensorflow: ModuleType) -> None:
        num_gpus = len(tensorflow.config.list_physical_devices("GPU"))
        chosen = communication(variables, num_gpus)
        if chosen is not Communication.MPI:
            from paceline.strategy.collective_runtime import use_tensorflow_collectives

            use_tensorflow_collectives(world, chosen)

    after_import("tensorflow", choose)


def run_script(arguments: Sequence[str]) -> None:
    """Runs ``[script, *args]`` or ``["-m", module, *args]`` in this process, which was started with ``python -P``.

    So `sys.path` has no folder of the command's own yet, and the script's is put before all others.

    Raises:
        FileNotFoundError: there is no such script.
    """
    if arguments[0] == "-m":
        sys.argv = [arguments[1], *arguments[2:]]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    sys.argv = [str(script), *arguments[1:]]
    if script.is_dir():
        runpy.run_path(str(script), run_name="__main__")
        return
    sys.path.insert(0, str(script.resolve().parent))
    # Not runpy.run_path: it takes the module's names away when the script ends, while threads and exit handlers of
    # the script still use them.
    file = str(script.absolute())  # as Python has it, so that the script may change its directory
    main = ModuleType("__main__")
    main.__dict__.update(__file__=file, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = main
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec")
    exec(code, main.__dict__)
