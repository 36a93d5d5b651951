"""Each refusal of docs/troubleshooting.md, provoked once: what a user does, what is raised, what the message says.

A file of rows for each kind of process in which they are provoked; what needs more is in `elsewhere.py`.
"""

import re
from pathlib import Path
from typing import Any

import beside_servers
import command_lines
import elsewhere
import one_process
import pytest
import two_workers
from refusal import Refusal
from tests.cli.command_line import CommandLine
from typer.testing import CliRunner

from paceline.cli.verbs import app
from worlds import Worlds

ROOT = Path(__file__).parents[2]


def _each(rows: list[Refusal]) -> Any:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row.code) for row in rows])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a row finds a script, and nothing that a launcher or a user has set; no job starts."""
    CommandLine(tmp_path, monkeypatch)
    Path("empty").mkdir()
    Path("damaged/step-000000000001").mkdir(parents=True)


@_each(command_lines.ROWS)
@pytest.mark.usefixtures("folder")
def test_a_command_line_is_refused(row: Refusal) -> None:
    result = CliRunner().invoke(app, row.provoked_by, env={"COLUMNS": "200", **row.variables})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == row.refused_with, result.output
    row.check(result.stderr)


@_each(one_process.ROWS)
@pytest.mark.usefixtures("folder")
def test_a_process_that_nobody_launched_is_refused(row: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in row.variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(row.refused_with) as caught:
        row.provoked_by()
    row.check(str(caught.value))


@_each(two_workers.ROWS)
@pytest.mark.processes
def test_both_of_two_workers_are_refused(row: Refusal, worlds: Worlds) -> None:
    for name, message in worlds.of(2).run(Path(two_workers.__file__), row.code).told:
        assert name == row.refused_with.__name__, message
        row.check(message)


@_each(beside_servers.ROWS)
@pytest.mark.processes
def test_a_chief_of_parameter_servers_is_refused(row: Refusal, worlds: Worlds) -> None:
    name, message = worlds.with_servers.run(Path(beside_servers.__file__), row.code).same
    assert name == row.refused_with.__name__, message
    row.check(message)


def test_each_code_has_a_row_or_a_test_elsewhere() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    codes = re.findall(r"^### ([a-z-]+)$", page, re.MULTILINE)
    rows = [row.code for module in (command_lines, one_process, two_workers, beside_servers) for row in module.ROWS]
    assert sorted([*rows, *elsewhere.TESTED_BY, *elsewhere.NOT_PROVOKED]) == sorted(codes)


def test_tests_elsewhere_name_their_codes() -> None:
    for code, (_, file) in elsewhere.TESTED_BY.items():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"""[\["]{code}\\?[\]"]""", text), (code, file)
