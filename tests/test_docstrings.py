"""Every example in a docstring gives what it says."""

from pathlib import Path

import pytest

from programs import run_python

REPOSITORY = Path(__file__).parents[1]
WITH_EXAMPLES = [
    path
    for folder in ("src", "tests")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
    if path != Path(__file__) and "    >>> " in path.read_text(encoding="utf-8")
]
RUN = """
import doctest
import importlib
import sys

failed = attempted = 0
for name in sys.argv[1:]:
    result = doctest.testmod(importlib.import_module(name))
    failed, attempted = failed + result.failed, attempted + result.attempted
print(f"{attempted} examples, {failed} failed")
"""


@pytest.mark.processes
def test_examples_in_docstrings(tmp_path: Path) -> None:
    """In a process of its own: some modules change Keras when they are imported."""
    modules = [path.relative_to(REPOSITORY).with_suffix("").parts for path in WITH_EXAMPLES]
    names = [".".join(parts).removeprefix("src.") for parts in modules]
    (tmp_path / "run.py").write_text(RUN)
    folders = f"{REPOSITORY}:{REPOSITORY / 'tests'}"
    ended = run_python("run.py", *names, folder=tmp_path, variables={"PYTHONPATH": folders})
    assert ended.code == 0, ended.output
    [told] = [line for line in ended.lines() if " examples, " in line]
    count, _, failed = told.partition(" examples, ")
    assert int(count) > 200
    assert failed == "0 failed", ended.output
