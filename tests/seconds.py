"""What the files and folders of tests cost: a table at the end of a run. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

NUM_FILES = 15


def table(durations: Iterable[tuple[str, float]]) -> list[str]:
    """The slowest files, and all folders, from the seconds of each phase of each test, by its node id.

    >>> for line in table([("tests/fit/test_a.py::test_b[x]", 2.0), ("tests/fit/test_a.py::test_c", 1.04)]):
    ...     print(line)
        3.0 s  tests/fit
        3.0 s    tests/fit/test_a.py
    """
    files: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for node, seconds in durations:
        file = node.partition("::")[0]
        files[file] += seconds  # type: ignore[assignment]  # a Counter of floats
        folders["/".join(file.split("/")[:2]) if file.count("/") > 1 else file] += seconds  # type: ignore[assignment]
    return [*_lines(folders, None, ""), *_lines(files, NUM_FILES, "  ")]


def _lines(seconds: Mapping[str, float], number: int | None, indent: str) -> list[str]:
    return [f"{cost:7.1f} s  {indent}{name}" for name, cost in Counter(seconds).most_common(number)]
