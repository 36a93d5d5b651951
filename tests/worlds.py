"""Warm worlds: jobs of `paceline run` that last as long as the test process, and take cases by name.

    def test_something(worlds):
        first, second = worlds.of(2).run(SCRIPT, "case", str(tmp_path)).told

TensorFlow is imported once a rank, and a test runs only the cases that it needs. What each rank does is in
`world_worker.py`. A case that fails, or does not end in time, ends its world, whatever state that was in; the next case
gets a new one.
"""

import contextlib
import json
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import start_python

WORKER = Path(__file__).with_name("world_worker.py")
_ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
"""For plain Keras, as each worker has: an Eigen thread more adds in another order. One for whole operations, too: where
a step reads a variable twice, TensorFlow's grappler may drop the edge from a read to the update, and the update may
then come first (`docs/exactness.md`)."""

_START_SECONDS = 120.0
_CASE_SECONDS = 400.0
_AFTER_A_FAILURE_SECONDS = 5.0
"""The others may be about to tell the same, or wait for the failed rank for ever."""

_OUTPUT_SECONDS = 60.0
_END_SECONDS = 60.0
_PAUSE_SECONDS = 0.02

_MOST_CASES = 50
"""After so many a world makes room: what Keras and TensorFlow keep of each case adds up to gigabytes a process."""

lasting: set[int] = set()
"""The processes of this one's worlds: they outlive the test that started them (`conftest.py`)."""


@dataclass(frozen=True)
class Case:
    """A case that came to its end on all ranks."""

    told: list[Any]
    """What it returned, by rank."""
    output: str
    """What it printed, as a terminal would have shown it."""

    @property
    def same(self) -> Any:
        """What all ranks told alike."""
        chiefs, *others = self.told
        assert all(other == chiefs for other in others), [chiefs, *others]
        return chiefs


class Worlds:
    """The worlds of a test process, each started when its first case is asked for."""

    def __init__(self) -> None:
        self._running: dict[str, World] = {}

    @property
    def plain(self) -> "World":
        """One process of Keras that nobody launches, for cases that do not import Paceline."""
        return self._of("plain")

    @property
    def not_launched(self) -> "World":
        """One process that nobody launches, for cases that import Paceline."""
        return self._of("not launched")

    @property
    def with_servers(self) -> "World":
        """As `not_launched`, for cases that make TensorFlow's servers in their process, which then stay in it."""
        return self._of("with servers")

    @property
    def with_other_servers(self) -> "World":
        """As `with_servers`, for cases that make them otherwise than `tests/strategy/servers_in_process.py`."""
        return self._of("with other servers")

    def of(self, num_workers: int, *, in_stages: bool = False, shares: str = "") -> "World":
        """A job of so many workers; of those with more than two, one at a time, for the memory's sake.

        Args:
            num_workers: How many.
            in_stages: For cases that make a `PipelineStrategy`: the ranks of a job are arranged once.
            shares: Of `paceline run`; empty: all workers have as many rows.
        """
        kind = f"{num_workers} in stages" if in_stages else f"{num_workers} {shares}".strip()
        for other, world in list(self._running.items()):
            if num_workers > 2 and other != kind and world.size > 2:
                self._running.pop(other).close()
        return self._of(kind, num_workers, ("--shares", shares) if shares else ())

    def close(self) -> None:
        """Ends them."""
        for world in self._running.values():
            world.close()
        self._running.clear()

    def _of(self, kind: str, num_workers: int = 0, options: tuple[str, ...] = ()) -> "World":
        world = self._running.get(kind)
        if world is not None and not world.has_ended and world.num_cases >= _MOST_CASES:
            world.close()
        if world is None or world.has_ended:
            # A step that cannot be divided is a defect, which `auto` would only report.
            options = ("--verify", "strict", *options) if num_workers else ()
            world = self._running[kind] = World(num_workers, may_import=kind != "plain", options=options)
        return world


class World:
    """A job of `num_workers`; 0: one process that nobody launches.

    Args:
        num_workers: How many.
        may_import: Whether its cases import Paceline.
        options: Of `paceline run`.
    """

    def __init__(self, num_workers: int, *, may_import: bool, options: tuple[str, ...] = ()) -> None:
        self.size = max(1, num_workers)
        self.has_ended = False
        self._may_import = may_import
        self._number = 0
        self._is_at_work = False
        self._folder = Path(tempfile.mkdtemp(prefix="paceline-world-"))
        path = str(self._folder / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(self.size)
            run = ("-m", "paceline", "run", "--workers", str(num_workers), *options) if num_workers else ()
            variables = {} if may_import else _ONE_THREAD
            self._program = start_python(*run, WORKER, path, folder=self._folder, variables=variables)
            lasting.add(self._program.process.pid)
            self._ranks = self._connected(listener)

    def run(
        self,
        script: Path,
        case: str,
        *arguments: str | Path,
        folder: Path | None = None,
        limit_seconds: float = _CASE_SECONDS,
    ) -> Case:
        """Runs ``run_case(case, *arguments)`` of `script` on every rank.

        Args:
            script: A Python file.
            case: As it knows it.
            arguments: Further ones.
            folder: The working directory meanwhile; else the world's own.
            limit_seconds: When it ends its world.

        Raises:
            AssertionError: a rank raised, or the case did not come to its end in time.
        """
        return self._run(script, case, *arguments, folder=folder, limit_seconds=limit_seconds)

    def run_script(
        self, script: Path, *arguments: str | Path, folder: Path, limit_seconds: float = _CASE_SECONDS
    ) -> Case:
        """Runs `script` as ``paceline run script *arguments`` in `folder` would, but for the start and the end."""
        return self._run(script, None, *arguments, folder=folder, limit_seconds=limit_seconds)

    def _run(
        self, script: Path, case: str | None, *arguments: str | Path, folder: Path | None, limit_seconds: float
    ) -> Case:
        self._number += 1
        self._is_at_work = True
        begin = len(self._program.output())
        request = {
            "number": self._number,
            "script": str(script),
            "case": case,
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder or self._folder),
            "limit_seconds": limit_seconds,
        }
        for rank in self._ranks:
            with contextlib.suppress(OSError):  # it is gone, which is told below
                rank.send(request)
        answers = self._answers(limit_seconds)
        name = f"{script.name}: case {case or request['arguments']!r}"
        if all("told" in answer for answer in answers):
            assert self._may_import or not answers[0]["knows_paceline"], f"{name} has imported Paceline"
            self._is_at_work = False
            return Case([answer["told"] for answer in answers], self._output(begin))
        output = self._kill()[begin:]
        failures = [
            f"--- rank {rank}: {answer.get('failure', f'not ended within {limit_seconds:g} s, or lost')}"
            for rank, answer in enumerate(answers)
            if "told" not in answer
        ]
        raise AssertionError("\n".join([f"{name} failed", *failures, "--- output", output]))

    @property
    def num_cases(self) -> int:
        """How many cases it has been asked for."""
        return self._number

    def close(self) -> None:
        """Lets its ranks leave in order; within a case, as after Ctrl-C, ends them. Idempotent."""
        if self.has_ended:
            return
        if self._is_at_work:
            self._kill()
            return
        for rank in self._ranks:
            rank.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.process.wait(_END_SECONDS)
        try:
            ended = self._program.ended(0)
        finally:
            self._ended()
        assert ended.code == 0, f"a warm world ended with {ended.code}:\n{ended.output[-3000:]}"

    def _connected(self, listener: socket.socket) -> "list[_Rank]":
        by_rank: dict[int, _Rank] = {}
        deadline = time.monotonic() + _START_SECONDS
        listener.settimeout(_PAUSE_SECONDS)
        while len(by_rank) < self.size:
            with contextlib.suppress(TimeoutError):
                rank = _Rank(listener.accept()[0])
                by_rank[rank.answer(_START_SECONDS)["rank"]] = rank
            if self._program.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"a warm world of {self.size} did not start:\n{self._kill()}")
        return [by_rank[rank] for rank in range(self.size)]

    def _answers(self, limit_seconds: float) -> list[dict[str, Any]]:
        """One of each rank; an empty one of a rank that did not come to its end."""
        answers: list[dict[str, Any]] = [{} for _ in self._ranks]
        deadline = time.monotonic() + limit_seconds
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self._ranks):
                selector.register(rank.connection, selectors.EVENT_READ, number)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    answers[key.data] = self._ranks[key.data].answer(left)
                    selector.unregister(key.fileobj)
                    if "told" not in answers[key.data]:
                        deadline = min(deadline, time.monotonic() + _AFTER_A_FAILURE_SECONDS)
        return answers

    def _output(self, begin: int) -> str:
        """What was printed since, once all of it has come through the launcher."""
        ends = [f"end of case {self._number} on rank {rank}" for rank in range(self.size)]
        deadline = time.monotonic() + _OUTPUT_SECONDS
        while any((output := self._program.output()[begin:]).count(end) < 2 for end in ends):
            assert time.monotonic() < deadline, f"the end of a case's output is missing:\n{output}"
            time.sleep(_PAUSE_SECONDS)
        return "".join(line for line in output.splitlines(keepends=True) if "end of case" not in line)

    def _kill(self) -> str:
        for rank in getattr(self, "_ranks", ()):
            rank.close()
        output = self._program.kill()
        self._ended()
        return output

    def _ended(self) -> None:
        self.has_ended = True
        lasting.discard(self._program.process.pid)
        shutil.rmtree(self._folder, ignore_errors=True)


class _Rank:
    """The connection to one of a world's processes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._line = connection.makefile("rw")

    def send(self, request: dict[str, Any]) -> None:
        print(json.dumps(request), file=self._line, flush=True)

    def answer(self, limit_seconds: float) -> dict[str, Any]:
        """The next line; empty if it is gone."""
        self.connection.settimeout(limit_seconds)
        with contextlib.suppress(OSError):
            line = self._line.readline()
            return json.loads(line) if line else {}
        return {}

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._line.close()
        self.connection.close()
