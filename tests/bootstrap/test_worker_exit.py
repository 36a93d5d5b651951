"""A worker ends like Python: everything written that the interpreter would have written, and its exit code."""

import contextlib
import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.observe.failure import advise
from programs import run_python, run_workers

pytestmark = pytest.mark.processes


def _run(folder: Path, text: str) -> int:
    script = folder / "script.py"
    script.write_text(text)
    return run_workers(1, script, folder=folder).code


def test_files_left_open_are_written(tmp_path: Path) -> None:
    assert _run(tmp_path, "kept = open('left.csv', 'w'); kept.write('1,2')") == 0
    assert (tmp_path / "left.csv").read_text() == "1,2"


def test_files_and_exit_handlers_of_a_script_that_fails(tmp_path: Path) -> None:
    code = _run(
        tmp_path,
        "import atexit\nkept = open('left.csv', 'w'); kept.write('1,2')\n"
        "atexit.register(lambda: open('handler', 'w').close())\n1 / 0\n",
    )
    assert code == 1
    assert (tmp_path / "left.csv").read_text() == "1,2"
    assert (tmp_path / "handler").exists()


@pytest.mark.parametrize(("status", "code"), [("0", 0), ("None", 0), ("3", 3), ("-1", 255), ("256", 1), ("'text'", 1)])
def test_sys_exit_gives_the_shells_code(tmp_path: Path, status: str, code: int) -> None:
    assert _run(tmp_path, f"import sys\nsys.exit({status})") == code


def test_a_forked_child_is_no_rank(tmp_path: Path) -> None:
    """It ran the rank's own end: it told the agent that the rank had finished."""
    text = (
        "import os, sys\npid = os.fork()\n"
        "if pid == 0:\n    print('child', flush=True); sys.exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "open('parent', 'w').close()\n"
    )
    assert _run(tmp_path, text) == 0
    assert (tmp_path / "parent").exists()


def test_a_program_that_the_script_starts_may_ask_for_its_rank(tmp_path: Path) -> None:
    """It inherited the numbers of descriptors that were not its own, and died of it."""
    text = (
        "import subprocess, sys, paceline\n"
        "assert paceline.is_chief()\n"
        "subprocess.run([sys.executable, '-c', 'import paceline; assert paceline.rank() == 0'], check=True)\n"
    )
    assert _run(tmp_path, text) == 0


def test_a_crash_shows_the_stack_of_the_script(tmp_path: Path) -> None:
    """faulthandler was nowhere enabled, and UCX's own backtrace is off: a segmentation fault told nothing but its
    signal.
    """
    (tmp_path / "script.py").write_text(
        "import ctypes, paceline, time\n"
        "def reads_nothing():\n    ctypes.string_at(0)\n"
        "reads_nothing() if paceline.rank() == 1 else time.sleep(600)\n"
    )
    ended = run_workers(2, "script.py", folder=tmp_path)
    assert ended.code == 128 + signal.SIGSEGV
    *report, last = ended.output.partition("The last lines of rank 1's stderr:")[2].splitlines()
    assert any("Segmentation fault" in line for line in report), ended.output
    assert any('script.py", line 3 in reads_nothing' in line for line in report), ended.output
    assert last.endswith("was killed by signal 11 (SIGSEGV). [worker-failed]")


_TOLD_AT_THE_END = """
import atexit, signal, sys, threading
from paceline.comm.world import current_world
from paceline.resilience.schedule import preemption_of
preemption_of(current_world())
def told(place):
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.raise_signal(number)  # returns when Python's handler has run
    open(place, "w").close()
atexit.register(told, "handler")
def late():
    threading.main_thread().join()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)  # it waits for this thread
threading.Thread(target=late).start()
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.proof),
        pytest.param("raise ValueError('wrong')", 1, marks=pytest.mark.proof),
    ],
)
def test_a_signal_to_stop_that_comes_while_the_interpreter_ends_changes_nothing(
    tmp_path: Path, end: str, code: int
) -> None:
    """An exit handler that it fell into was cut off, with a traceback of `SystemExit: 75`."""
    script = tmp_path / "script.py"
    script.write_text(_TOLD_AT_THE_END + end)
    for start in (["-m", "paceline", "run", script], [script]):
        ended = run_python(*start, folder=tmp_path)
        assert "SystemExit" not in ended.output
        assert ended.code == code, ended.output
        if code == 0 or len(start) == 1:  # where snapshots are taken, a launcher ends a job that fails at once
            assert (tmp_path / "handler").exists()
            (tmp_path / "handler").unlink()


def _write_to_a_locked_database(folder: Path) -> None:
    first, second = (sqlite3.connect(folder / "rows.db", timeout=0) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        first.execute("create table rows (x)")
        first.execute("begin exclusive")
        second.execute("insert into rows values (1)")


@pytest.mark.parametrize(
    ("fails", "is_advised"),
    [
        pytest.param(lambda folder: (folder / "there").mkdir(), True, id="made already"),
        pytest.param(lambda folder: folder.rmdir(), True, id="filled meanwhile"),
        pytest.param(lambda folder: (folder / "gone").rename(folder / "there"), True, id="moved already"),
        pytest.param(_write_to_a_locked_database, True, id="locked by another"),
        pytest.param(lambda folder: (folder / "wrong_name").open(), False, id="not there"),
        pytest.param(lambda folder: folder.open(), False, id="a folder"),
        pytest.param(lambda folder: json.loads("{"), False, id="no file at all"),
    ],
)
def test_only_an_error_that_shows_two_at_one_file_says_that_every_worker_runs_the_line(
    tmp_path: Path, fails: Callable[[Path], object], is_advised: bool
) -> None:
    """Each missing file was told to be a race, also one whose name was misspelt."""
    (tmp_path / "there").mkdir()
    with pytest.raises(Exception) as caught:  # noqa: PT011  # each another class
        fails(tmp_path)
    advise(caught.value, 2)
    notes = getattr(caught.value, "__notes__", [])
    assert [note.endswith("[every-worker-runs-this]") for note in notes] == ([True] if is_advised else [])


def test_a_file_that_ranks_race_for(tmp_path: Path) -> None:
    """One rank ended with a bare FileExistsError, and nothing said that every rank had made the folder."""
    (tmp_path / "script.py").write_text(
        "import os, paceline, pathlib, time\n"
        "def prepare():\n    os.makedirs('data')\n"
        "if paceline.rank() == 0:\n    prepare()\n    time.sleep(600)\n"
        "while not os.path.exists('data'):\n    time.sleep(0.01)\n"
        "prepare()\n"
    )
    ended = run_workers(2, "script.py", folder=tmp_path)
    lines = ended.output.splitlines()
    assert lines[-2].startswith("paceline: every worker runs this line (script.py:3 in prepare). ")
    assert lines[-2].endswith(" [every-worker-runs-this]")
    assert "paceline.once_per_host" in lines[-2]
    assert lines[-1].startswith("paceline: rank 1 (")
    assert "FileExistsError" in lines[-1]
    alone = run_workers(1, "script.py", folder=tmp_path)
    assert "FileExistsError" in alone.output
    assert "every worker" not in alone.output
