"""The first moments of the command: signals while it loads, and standard streams that are closed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from programs import LIMIT_SECONDS

pytestmark = pytest.mark.processes

INTERRUPTED = """
import os, sys
class Interrupts:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Interrupts)
sys.argv = ["paceline", "run", "--workers", "1", "train.py"]
from paceline.cli.app import main
main()
"""
TRAIN = "import pathlib, sys; print('said'); pathlib.Path(sys.argv[1]).touch()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("module", ["typer", "paceline.cli.job_settings", "asyncio"])
def test_a_signal_while_the_command_loads_ends_it_quietly(tmp_path: Path, module: str, number: signal.Signals) -> None:
    """Nobody handled signals before the event loop ran: Python's traceback, and -15 in place of 143."""
    (tmp_path / "train.py").write_text("raise AssertionError('it must not run')")
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module, number=int(number))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # the tests may run under `nohup`
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_job_runs_with_its_standard_streams_closed(tmp_path: Path, closed: str) -> None:
    """Python has no `sys.stdout` then: nothing was trained, for an AttributeError."""
    (tmp_path / "train.py").write_text(TRAIN)
    command = f'"$0" -m paceline run --workers 1 --log-dir logs train.py ran {closed}'
    ended = subprocess.run(
        ["sh", "-c", command, sys.executable], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "ran").exists()
    assert ("said" in ended.stdout) == (">&- " not in f"{closed} ".replace("2>&-", "")), ended.stdout
    assert "said" in (tmp_path / "logs/latest/job_0.log").read_text()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_other_verbs_and_workers_without_the_launcher_do_without_streams(tmp_path: Path, closed: str) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib\nfrom paceline.leaving import leave\nfrom paceline.observe import failure\n"
        "failure.write_stacks_of_crash()\nfailure.write_stacks_when_asked()\n"
        "pathlib.Path('ran').touch()\nleave(0)\n"
    )
    for words in ("-m paceline --version", "-m paceline snapshot --help", "train.py"):
        ended = subprocess.run(
            ["sh", "-c", f'"$0" {words} {closed}', sys.executable],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert ended.returncode == 0, (words, ended.stderr)
    assert (tmp_path / "ran").exists()
