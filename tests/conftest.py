"""No test leaves anything behind: no environment variable, no thread, no child process (house rule 23)."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from parity_runs import Runs
from ports import HoldPorts, held_ports
from seconds import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401  # hooks
from worlds import Worlds, lasting

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Begun in the background of a shell script: programs under test would ignore Ctrl-C as they should then.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs under test write bytecode, as Python does by default: without, each would compile TensorFlow's modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long an example takes, to make or to run, is the machine's affair.
_unhurried: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("check", max_examples=20, **_unhurried)
hypothesis.settings.register_profile("proof", max_examples=400, **_unhurried)
hypothesis.settings.load_profile("check")

_GRACE_SECONDS = 90.0  # who frees an iterator may wait for a minute (`data/freed_iterators.py`)
"""Threads and children that a test has told to end may take a moment to do so."""

_SET_BY_PYTEST = {"PYTEST_CURRENT_TEST"}


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Fails a test that changes the environment, or leaves a thread or a child process running."""
    environment, threads, children = _environment(), set(threading.enumerate()), _children()
    yield
    changed = {name: os.environ.get(name) for name, _ in environment.items() ^ _environment().items()}
    _restore(environment)
    assert not changed, f"the test leaves environment variables changed (None: unset): {changed}"
    assert not _after_grace(lambda: _threads() - threads), "the test leaves threads running"
    assert not _after_grace(lambda: _children() - children), "the test leaves child processes running"


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    """Warm worlds, which run cases by name (see `worlds.py`); they last as long as this process."""
    with contextlib.closing(Worlds()) as worlds:
        yield worlds


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, worlds: Worlds) -> Runs:
    """The results of parity jobs: data parallelism and pipelines are compared with the same reference."""
    return Runs(tmp_path_factory.mktemp("parity"), worlds)


@pytest.fixture
def hold_ports() -> Iterator[HoldPorts]:
    """Gives ports on which nobody listens, and that nobody else is given while the test lasts."""
    with contextlib.ExitStack() as held:
        yield lambda count: held.enter_context(held_ports(count))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _SET_BY_PYTEST}


def _restore(environment: dict[str, str]) -> None:
    """One failure each: the next test starts from the environment that this one found."""
    for name in os.environ.keys() - environment.keys() - _SET_BY_PYTEST:
        del os.environ[name]
    os.environ.update(environment)


def _threads() -> set[threading.Thread]:
    """The running threads that Python has started (TensorFlow's own show up as dummies once they call Python).

    Without those that compute updates of weights: they last as long as the process.
    """
    return {
        thread
        for thread in threading.enumerate()
        if not isinstance(thread, threading._DummyThread) and not thread.name.startswith("paceline-update")
    }


def _children() -> set[int]:
    """Direct children of this process that have not been waited for, beside the warm worlds (Linux; elsewhere none)."""
    children: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended since it was listed
            children.update(map(int, path.read_text().split()))
    return children - lasting


def _after_grace(left: Callable[[], set[Any]]) -> set[Any]:
    """What is left once the grace is over, or nothing."""
    give_up_at = time.monotonic() + _GRACE_SECONDS
    while (remaining := left()) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    return remaining
