"""The end of the process of `paceline run` loses nothing that Python's own end would have kept."""

from pathlib import Path

from programs import Ended, run_python

_BUFFERED = {"PYTHONUNBUFFERED": ""}


def _run(code: str, folder: Path) -> Ended:
    leaving = f"import atexit, os, sys\nfrom paceline.leaving import leave\n{code}\nleave(7)\n"
    return run_python("-c", leaving, folder=folder, variables=_BUFFERED)


def test_the_code_the_output_and_the_exit_handlers(tmp_path: Path):
    ended = _run("atexit.register(print, 'exit handler')\nsys.stdout.write('unwritten ')", tmp_path)
    assert (ended.code, ended.output) == (7, "unwritten exit handler\n")


def test_a_reader_that_is_gone_changes_nothing(tmp_path: Path):
    gone = "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\nsys.stdout.write('unread')"
    ended = _run(gone, tmp_path)
    assert (ended.code, ended.output) == (7, "")


def test_nothing_is_taken_apart(tmp_path: Path):
    slow = "class Slow:\n    def __del__(self):\n        os.write(1, b'freed')\nkept = Slow()"
    assert _run(slow, tmp_path).output == ""
