"""What the files and folders of tests cost: a table at the end of a run. A folder above its budget fails in CI."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

NUM_FILES = 15
BUDGETS = Path(__file__).with_name("budgets.txt")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What each folder and the slowest files have cost, over all processes of the run; which is above its budget."""
    durations = _durations(terminalreporter)
    if len({node.partition("::")[0] for node, _ in durations}) > 1:
        terminalreporter.section("seconds by folder, and of the slowest files")
        for line in [*table(durations), *above_budget(durations, budgets(BUDGETS.read_text()))]:
            terminalreporter.line(line)


def pytest_sessionfinish(session: Any) -> None:
    """In CI, a folder above its budget fails the run."""
    terminalreporter = session.config.pluginmanager.get_plugin("terminalreporter")  # none in a process of xdist's
    if "CI" not in os.environ or terminalreporter is None or session.exitstatus:
        return
    if above_budget(_durations(terminalreporter), budgets(BUDGETS.read_text())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def table(durations: Iterable[tuple[str, float]]) -> list[str]:
    """The slowest files, and all folders, from the seconds of each phase of each test, by its node id.

    >>> for line in table([("tests/fit/test_a.py::test_b[x]", 2.0), ("tests/fit/test_a.py::test_c", 1.04)]):
    ...     print(line)
        3.0 s  tests/fit
        3.0 s    tests/fit/test_a.py
    """
    durations = list(durations)
    files: Counter[str] = Counter()
    for node, seconds in durations:
        files[node.partition("::")[0]] += seconds  # type: ignore[assignment]  # a Counter of floats
    return [*_lines(_of_folders(durations), None, ""), *_lines(files, NUM_FILES, "  ")]


def budgets(text: str) -> dict[str, float]:
    """The budget of each folder, in seconds, from lines as those of `table`; a comment begins with #.

    >>> budgets("# measured\\n  90.0 s  tests/cli\\n")
    {'tests/cli': 90.0}
    """
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {folder: float(seconds) for seconds, _, folder in lines}


def above_budget(durations: Iterable[tuple[str, float]], allowed: Mapping[str, float]) -> list[str]:
    """The folders that have cost more than their budgets, as lines.

    >>> above_budget([("tests/cli/test_a.py::test_b", 100.0)], {"tests/cli": 90.0, "tests/fit": 1.0})
    ['tests/cli: 100.0 s, above its budget of 90 s (tests/budgets.txt)']
    """
    return [
        f"{folder}: {seconds:.1f} s, above its budget of {allowed[folder]:g} s (tests/budgets.txt)"
        for folder, seconds in sorted(_of_folders(durations).items())
        if folder in allowed and seconds > allowed[folder]
    ]


def _of_folders(durations: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    folders: Counter[str] = Counter()
    for node, seconds in durations:
        file = node.partition("::")[0]
        folders["/".join(file.split("/")[:2]) if file.count("/") > 1 else file] += seconds  # type: ignore[assignment]
    return folders


def _lines(seconds: Mapping[str, float], number: int | None, indent: str) -> list[str]:
    return [f"{cost:7.1f} s  {indent}{name}" for name, cost in Counter(seconds).most_common(number)]


def _durations(terminalreporter: Any) -> list[tuple[str, float]]:
    """The seconds of each phase of each test, by its node id."""
    reports = [one for some in terminalreporter.stats.values() for one in some if hasattr(one, "duration")]
    return [(one.nodeid, one.duration) for one in reports]
