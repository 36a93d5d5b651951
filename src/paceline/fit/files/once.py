"""`once_per_host` and `once`: one worker does something for all workers of its host, or of the job.

Every worker runs every line of a script, also the one that makes a folder, unzips an archive or fills a database. Of
the ranks of a host the first to come does it, under a lock of the kernel's (`claims.py`), and leaves its *outcome*:

    rank 1   lock ─► no outcome ─► the block ─► outcome: what it returned, or how it failed ─► unlock ─► goes on
    rank 0   lock ─ (waits in the kernel) ──────────────────────────────────────────► outcome ─► unlock ─► goes on

No rank asks another one, and none waits for one that never comes. Only a job on several hosts has no file that all of
them see at once: there `once` is a collective, and the chief does it.

Keras's downloads are done so, too. Keras downloads into the file's final name and extracts over what is there, without
a lock. Here one rank calls Keras and notes where the file is; the others do not ask Keras again, which would extract an
archive, or download a file with `force_download`, while the first one reads it. What is downloaded is renamed into its
place when it is whole: a job that is killed meanwhile leaves no part of it.
"""

import base64
import functools
import hashlib
import inspect
import json
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from paceline.cluster import environment
from paceline.cluster.mpi_launchers import announced_by_mpi
from paceline.cluster.schedulers import scheduled_place
from paceline.comm.world import World, current_world
from paceline.fit.files.atomic_write import replacing
from paceline.fit.files.claims import shared_claims

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@dataclass
class _Share:
    """One rank's part in what is done once."""

    is_first: bool
    result: Any = None


_Meet = Callable[[World, str], AbstractContextManager[_Share]]


class Once:
    """What `once_per_host()` and `once()` return: a block, or a decorator. Each use is a new one."""

    def __init__(self, name: str, meet: _Meet) -> None:
        self._name = name
        self._meet = meet
        self._entered: AbstractContextManager[_Share] | None = None

    def __enter__(self) -> bool:
        """Whether this rank is the one that does it; on the others the block begins when it has been done."""
        self._entered = self._meet(_world(), self._name)
        return self._entered.__enter__().is_first

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, None
        assert entered is not None
        entered.__exit__(kind, error, trace)

    def __call__(self, function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        """`function`, which one rank calls; all ranks get what it returned."""
        name = f"{getattr(function, '__qualname__', type(function).__qualname__)}, given at {self._name}"
        running = False

        @functools.wraps(function)
        def called_once(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            nonlocal running
            if running:  # it calls itself
                return function(*args, **kwargs)
            with self._meet(_world(), name) as share:
                if share.is_first:
                    running = True
                    try:
                        share.result = function(*args, **kwargs)
                    finally:
                        running = False
            return share.result  # type: ignore[no-any-return]

        return called_once


@overload
def once_per_host(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]: ...
@overload
def once_per_host() -> Once: ...
def once_per_host(function: Callable[..., Any] | None = None) -> Any:
    """Runs a function or block on one worker of each host, while the other workers of that host wait.

        @paceline.once_per_host
        def prepare(folder):                        # one worker runs it; all workers get the result
            os.makedirs(folder)
            with zipfile.ZipFile("digits.zip") as archive:
                archive.extractall(folder)
            return folder

        folder = prepare("data")

        with paceline.once_per_host() as first:     # a block: True on one worker; the others enter it afterwards
            if first:
                os.makedirs("logs")

    For folders, downloads, archives, databases. It works before TensorFlow is imported. With one worker, the function
    simply runs. The first worker that makes the call runs the function, so not all workers have to make the call. In a
    job started by hand (TF_CONFIG, `srun`, `mpiexec`), workers may connect here: then all must make the call.

    Args:
        function: The function to run. `pickle` must be able to store its result.

    Returns:
        The function, to be called in its place; without `function`, a context manager.

    Raises:
        RuntimeError: when called, on the other workers: the function failed on the worker that ran it. That worker
            gets the original exception.
        TypeError: when called: pickle cannot store the result.
    """
    once = Once(_place(sys._getframe(1)), _on_host)
    return once if function is None else once(function)


@overload
def once(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]: ...
@overload
def once() -> Once: ...
def once(function: Callable[..., Any] | None = None) -> Any:
    """Runs a function or block on one worker of the job, while all others wait; otherwise like `once_per_host`.

        with paceline.once() as first:
            if first:
                np.save("mean.npy", x.mean(axis=0))     # on a file system that all hosts share
        mean = np.load("mean.npy")                      # on every worker; the file is complete

    In a job on several hosts, the chief runs the function, and the call is collective: every worker must make it, in
    the same order as other collectives. The block must not contain a collective.

    Args:
        function: See `once_per_host`.

    Returns:
        See `once_per_host`.

    Raises:
        RuntimeError: see `once_per_host`.
        TypeError: see `once_per_host`.
    """
    one = Once(_place(sys._getframe(1)), _in_job)
    return one if function is None else one(function)


def _world() -> World:
    world = current_world()
    return world if world.launched or world.size > 1 else _world_by_hand()


@functools.cache
def _world_by_hand() -> World:
    """The world that a strategy would join here, asked for once."""
    announced = os.environ.get(environment.TF_CONFIG) or announced_by_mpi(os.environ) or scheduled_place(os.environ)
    if not announced:
        return current_world()
    import tensorflow  # noqa: F401  # the strategies are built on it; a process that is alone needs neither

    from paceline.strategy.multi_worker_mirrored import world_of

    return world_of(None)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@contextmanager
def _on_host(world: World, name: str) -> Iterator[_Share]:
    if world.identity.local_world_size == 1:
        yield _Share(is_first=True)
        return
    # Each life of the group runs the script anew.
    with shared_claims().first(f"once {name}", str(world.identity.generation)) as (outcome, leave):
        if outcome is None:
            with _leaving_outcome(world, leave) as share:
                yield share
            return
        share = _taken_over(outcome)
    yield share


@contextmanager
def _in_job(world: World, name: str) -> Iterator[_Share]:
    if world.identity.local_world_size == world.size:
        with _on_host(world, name) as share:
            yield share
        return
    import numpy as np
    import tensorflow  # noqa: F401  # before the group is formed: it knows of GPUs, which choose how ranks talk

    group = world.group
    if world.is_chief:

        def leave(outcome: str) -> None:
            group.all_gather(np.frombuffer(outcome.encode(), np.uint8))

        with _leaving_outcome(world, leave) as share:
            yield share
        return
    outcome, *_ = group.all_gather(np.empty(0, np.uint8))
    yield _taken_over(outcome.tobytes().decode())


@contextmanager
def _leaving_outcome(world: World, leave: Callable[[str], None]) -> Iterator[_Share]:
    share = _Share(is_first=True)
    try:
        yield share
        outcome = {"result": _pickled(share.result)}
    except BaseException as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        leave(json.dumps({"failed": f"rank {world.rank} ({socket.gethostname()}): {told}"}))
        raise
    leave(json.dumps(outcome))


def _pickled(result: Any) -> str:
    try:
        return base64.b64encode(pickle.dumps(result)).decode()
    except Exception as fault:
        raise TypeError(
            f"the function under paceline.once_per_host returned a {type(result).__name__}, which cannot be sent "
            f"to the other workers: {fault}. Return a path, numbers or None, and let every worker load what was "
            "prepared. [once-result]"
        ) from fault


def _taken_over(outcome: str) -> _Share:
    told = json.loads(outcome)
    if "failed" in told:
        raise RuntimeError(
            f"the function or block under paceline.once_per_host failed on {told['failed']}. That rank ran "
            "it for all workers, and its output has the traceback. [once-failed]"
        )
    return _Share(is_first=False, result=pickle.loads(base64.b64decode(told["result"])))


Function = Callable[..., Any]


def downloaded_once(keras_get: Function) -> Function:
    """`keras.utils.get_file`: one rank of a host at a time, once for each call that all of them make."""
    signature = inspect.signature(keras_get)

    def get_file(*args: Any, **kwargs: Any) -> Any:
        if current_world().size == 1:
            return keras_get(*args, **kwargs)
        asked = dict(signature.bind(*args, **kwargs).arguments)
        folder = os.path.realpath(Path(asked.get("cache_dir") or os.environ.get("KERAS_HOME", "~/.keras")).expanduser())
        is_extracted = bool(asked.get("extract") or asked.get("untar")) and not asked.get("force_download")
        moment = hashlib.sha256(repr(sorted(asked.items())).encode()).hexdigest()
        # One at a time for a whole folder: the names of a file and of what is in it are Keras's business.
        return shared_claims().made_once(
            f"get_file {folder}",
            moment,
            lambda: os.fspath(keras_get(*args, **kwargs)),
            is_there=os.path.exists,
            each_call=not is_extracted,
        )

    return get_file


def retrieved_whole(retrieve: Function) -> Function:
    """`urllib.request.urlretrieve`, as Keras calls it, into its file's place at once."""

    def urlretrieve(url: str, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
        if filename is None or current_world().size == 1:
            return retrieve(url, filename, *args, **kwargs)
        with replacing(os.fspath(filename)) as unfinished:
            _, headers = retrieve(url, unfinished, *args, **kwargs)
        return filename, headers

    return urlretrieve
