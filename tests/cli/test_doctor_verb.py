"""`paceline doctor` as users type it: this host, and several that a stand-in for ssh starts beside each other."""

import json
import os
import re
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.verbs import app
from paceline.doctor.examination import PATIENCE_SECONDS
from process_table import SOON_SECONDS, marked, until_gone
from programs import Ended, Program

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 100
FAST_SECONDS = 10
COLUMNS = 80

SSH = """#!/bin/sh
while [ "$1" != -- ]; do host=$1; shift; done
here=$(dirname "$0")
case $host in
    ahead|old|earlier) PYTHONPATH=$here/$host; export PYTHONPATH;;
    gone) echo 'ssh: Could not resolve hostname gone: Name or service not known' >&2; exit 255;;
    silent) exec sleep 1000;;
    lost) echo the power is gone >&2; printf '\\0paceline agent @VERSION@\\n'; exit 1;;
esac
exec sh -c "$2"
"""
"""In the place of ssh: what each host is like."""

EARLIER = """
import sys

class Finder:
    def find_spec(self, name, *_):
        if name == "paceline.doctor":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Finder())
"""
"""A Paceline that has no doctor yet."""

AHEAD = "import time\nreal = time.time\ntime.time = lambda: real() + 3\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the stand-in, and what makes its hosts different."""
    from paceline import __version__

    (tmp_path / "ssh").write_text(SSH.replace("@VERSION@", __version__))
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "ahead").mkdir()
    (tmp_path / "ahead/sitecustomize.py").write_text(AHEAD)
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier/sitecustomize.py").write_text(EARLIER)
    keras = tmp_path / "old/keras-3.10.0.dist-info"
    keras.mkdir(parents=True)
    (keras / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 3.10.0\n")
    return tmp_path


def start(folder: Path, *words: str | Path, **variables: str) -> Program:
    command = [sys.executable, "-m", "paceline", "doctor", *words]
    return Program(command, folder, {"COLUMNS": str(COLUMNS), **variables})


def typed(folder: Path, *words: str | Path, **variables: str) -> Ended:
    ended = start(folder, *words, **variables).ended(LIMIT_SECONDS)
    assert "Traceback" not in ended.output, ended.output
    return ended


def findings(ended: Ended, check: str) -> list[dict[str, Any]]:
    """Those of JSON about that check."""
    found = json.loads(ended.output[ended.output.index("{") :])["findings"]
    return [one for one in found if one["check"] == check]


def test_this_host(tmp_path: Path) -> None:
    ended = typed(tmp_path)
    assert ended.code == 0, ended.output
    assert ended.seconds < FAST_SECONDS
    lines = [line for line in ended.output.splitlines() if not line.startswith("paceline: ")]
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0] == "localhost"
    assert re.fullmatch(r"A job can run: no errors, \w+ warnings?\.", lines[-1])
    assert "\033" not in ended.output
    for check in ("versions", "cores", "load", "steal", "memory", "/dev/shm", "disk", "ports"):
        assert re.search(rf"^  (ok|warning) +{check} ", ended.output, re.MULTILINE), check


def test_json_for_a_program(tmp_path: Path) -> None:
    ended = typed(tmp_path, "--json", "--snapshot-dir", "snapshots")
    assert ended.code == 0, ended.output
    told = json.loads(ended.output[ended.output.index("{") :])
    assert told["can_run"] is True
    assert {one["severity"] for one in told["findings"]} <= {"ok", "warning"}
    assert told["hosts"]["localhost"]["versions"]["TensorFlow"]
    assert {disk["use"]: disk["path"] for disk in told["hosts"]["localhost"]["disks"]}["snapshots"] == str(
        tmp_path / "snapshots"
    )
    assert told["pairs"] == []


def test_what_no_job_could_write_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "snapshots").touch()
    ended = typed(tmp_path, PACELINE_SNAPSHOT_DIR="snapshots")
    assert ended.code == 1
    assert re.search(r"^  error +disk ", ended.output, re.MULTILINE)
    assert "Fix: Name a directory" in ended.output
    assert "A job cannot run: 1 error" in ended.output


def test_hosts_that_differ_and_hosts_that_do_not_come(folder: Path) -> None:
    words = ("--hosts", "plain:2,ahead,old,gone,lost,earlier", "--ssh-command", folder / "ssh", "--json")
    ended = typed(folder, *words)
    assert ended.code == 1
    gone, lost, earlier = (one for one in findings(ended, "ssh") if one["severity"] == "error")
    assert (gone["host"], lost["host"], earlier["host"]) == ("gone", "lost", "earlier")
    assert earlier["text"] == "The host has an older Paceline."
    assert "does not resolve" in gone["text"]
    assert "the power is gone" in lost["text"]
    (versions,) = (one for one in findings(ended, "versions") if one["severity"] == "error")
    assert versions["host"] == "old"
    assert versions["text"].startswith("Keras is 3.10.0 on old")
    (clock,) = findings(ended, "clocks")
    assert (clock["severity"], clock["host"]) == ("warning", "ahead")
    assert re.search(r"is [23]\.\d s ahead", clock["text"])
    told = json.loads(ended.output[ended.output.index("{") :])
    assert list(told["hosts"]) == ["plain", "ahead", "old"]
    assert {frozenset(one["hosts"]) for one in told["pairs"]} >= {
        frozenset(pair) for pair in (("plain", "ahead"), ("ahead", "old"), ("old", "plain"))
    }


@pytest.mark.proof
def test_several_hosts_on_a_screen(folder: Path) -> None:
    ended = typed(folder, "--hosts", "plain,gone", "--ssh-command", folder / "ssh")
    assert ended.code == 1
    assert max(len(line) for line in ended.output.splitlines() if not line.startswith("paceline: ")) <= COLUMNS
    assert re.search(r"^gone\n  error +ssh +The host cannot be found", ended.output, re.MULTILINE)
    assert re.search(r"^plain\n  ok +ssh, versions, ", ended.output, re.MULTILINE)


def test_an_interrupt_ends_it_at_once(folder: Path) -> None:
    """Before, a line says what it waits for."""
    mark = uuid.uuid4().hex
    program = start(folder, "--hosts", "silent", "--ssh-command", folder / "ssh", DOCTOR_TEST=mark)
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while "waits for silent to answer" not in program.output():
        assert time.monotonic() < give_up_at, program.kill()
        time.sleep(0.05)
    assert time.monotonic() > give_up_at - LIMIT_SECONDS + PATIENCE_SECONDS / 2
    os.kill(program.process.pid, signal.SIGINT)
    ended = program.ended(LIMIT_SECONDS)
    assert ended.code == 130
    assert "Traceback" not in ended.output
    assert not until_gone(lambda: marked("DOCTOR_TEST", mark), SOON_SECONDS)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--hosts", "a:x"), 2, "[hosts]"),
        (("--hostfile", "nosuch"), 2, "cannot be read"),
        (("--hosts", "a", "--ssh-command", "'"), 2, "--ssh-command"),
        (("nosuch",), 2, "unexpected extra argument"),
    ],
)
def test_a_wrong_command_line(words: tuple[str, ...], code: int, told: str) -> None:
    result = CliRunner().invoke(app, ["doctor", *words])
    assert result.exit_code == code, result.output
    assert told in result.output
