"""How a process that no launcher started ends; its group is a socket here."""

from pathlib import Path

import pytest

from paceline.errors import EXIT_CONFIGURATION
from programs import run_python

PROGRAM = Path(__file__).with_name("departing.py")


def test_neither_forked_children_nor_threads_fail_or_leave_the_group(tmp_path: Path) -> None:
    """It inherited the end of the rank: `sys.exit(1)` in a `multiprocessing` child ended the whole group, and a child
    that ended well closed the shared windows.
    """
    ended = run_python(PROGRAM, folder=tmp_path)
    said = ended.lines()
    assert said[-3:] == ["1 0 3 1", "told nothing", """left b'{"type":"Finishing"}\\n'"""], ended.output
    assert said[-4] == "LookupError: in the child"
    assert ended.code == 0


@pytest.mark.parametrize(("how", "code"), [("alone", EXIT_CONFIGURATION), ("member", 3)])
def test_exit_handlers_run_once_after_a_failure(tmp_path: Path, how: str, code: int) -> None:
    """Those that were registered after the strategy ran twice."""
    ended = run_python(PROGRAM.with_name("departing_failed.py"), how, folder=tmp_path)
    assert ended.code == code, ended.output
    assert ended.lines("registered ") == ["registered after", "registered before"]


def test_an_exception_in_an_interactive_session_ends_no_rank(tmp_path: Path) -> None:
    """The first typo at the prompt of one rank ended the whole job."""
    ended = run_python("-i", PROGRAM.with_name("departing_failed.py"), "prompt", folder=tmp_path)
    assert "LookupError: a typo" in ended.output
    assert ended.lines("left") == ["""left b'{"type":"Finishing"}\\n'"""], ended.output
    assert ended.code == 0
