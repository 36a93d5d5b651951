"""A worker runs a script as Python itself would."""

from pathlib import Path

import pytest

from paceline.launcher.job import Program
from programs import Ended, run_python

_SCRIPT = """
import json, sys
import beside
import atexit

def kept():
    return beside.VALUE

atexit.register(lambda: print("at exit:", kept()))
assert sys.modules["__main__"].kept is kept
print(json.dumps([__name__, __file__, sys.argv, sys.path]))
"""


def _run_as_bootstrap(folder: Path, *arguments: str) -> Ended:
    program = "import sys; from paceline.bootstrap.worker import run_script; run_script(sys.argv[1:])"
    return run_python("-P", "-c", program, *arguments, folder=folder, variables=_path(folder))


def _path(folder: Path) -> dict[str, str]:
    """An entry equal to the current directory: it stays, besides what Python puts first."""
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    for place in (tmp_path, package):
        (place / "script.py").write_text(_SCRIPT)
        (place / "beside.py").write_text("VALUE = 'there'\n")
    (package / "__main__.py").write_text(_SCRIPT)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["script.py", "--rate", "0.1", "-m"], id="a script"),
        pytest.param(["package/script.py"], id="a script elsewhere"),
        pytest.param(["-m", "script", "one"], id="a module"),
        pytest.param(["-m", "package.script"], id="a module of a package"),
        pytest.param(["-m", "package", "one"], id="a package"),
    ],
)
def test_as_python_runs_it(folder: Path, arguments: list[str]) -> None:
    expected = run_python(*arguments, folder=folder, variables=_path(folder))
    assert expected.code == 0, expected.output
    assert _run_as_bootstrap(folder, *arguments).output == expected.output


def test_a_traceback_shows_the_scripts_own_lines(folder: Path) -> None:
    (folder / "script.py").write_text("def fail():\n    raise LookupError('here')\n\nfail()\n")
    output = _run_as_bootstrap(folder, "script.py").output
    assert f'File "{folder}/script.py", line 2, in fail\n    raise LookupError' in output


def test_classes_of_the_script_can_be_pickled(folder: Path) -> None:
    (folder / "script.py").write_text(
        "import pickle\nclass Thing: pass\nprint(type(pickle.loads(pickle.dumps(Thing()))) is Thing)\n"
    )
    assert _run_as_bootstrap(folder, "script.py").output == "True\n"


_SPAWNS = """
import multiprocessing, sys
import beside

def value():
    import beside
    return beside.VALUE

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(value))
"""


def test_files_in_the_current_directory_take_no_librarys_place(folder: Path) -> None:
    """A worker died of a `signal.py` beside the folder of its script. Processes that it spawns find its modules."""
    (folder / "signal.py").write_text("raise SystemExit('not the one of the standard library')")
    (folder / "package" / "script.py").write_text(_SPAWNS)
    ended = run_python(*Program("package/script.py").command()[1:], folder=folder)
    assert ended.output == "there\n"
