"""A rank that is made slow in a known way is named, with the reason; where nobody is slow, nobody is."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from programs import Ended, run_workers
from straggling import REASONS, cases

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).parent / "stragglers.py"

QUOTA = 0.2
"""Of a core."""


@contextlib.contextmanager
def limited_group() -> Iterator[Path]:
    """A control group whose processes get a part of a core; skips the test where this user can make none."""
    version_1 = Path("/sys/fs/cgroup/cpu")
    group = (version_1 if version_1.exists() else Path("/sys/fs/cgroup")) / f"paceline-test-{os.getpid()}"
    quota = int(QUOTA * 100_000)
    name, text = ("cpu.cfs_quota_us", f"{quota}") if version_1.exists() else ("cpu.max", f"{quota} 100000")
    with contextlib.ExitStack() as made:
        try:
            group.mkdir()
            made.callback(group.rmdir)
            (group / name).write_text(text)
        except OSError as fault:
            pytest.skip(f"nobody but root makes control groups, where they are writable: {fault}")
        yield group


def stragglers(folder: Path, kind: str, rank: int, *more: str) -> tuple[Ended, list[dict[str, Any]]]:
    options = ["--events", "events.jsonl"]
    if kind == "slow":
        options += ["--snapshot-dir", "kept", "--chaos", f"slow:rank={rank},factor=2.5"]
    ended = run_workers(2, *options, SCRIPT, "none" if kind == "slow" else kind, str(rank), *more, folder=folder)
    assert ended.code == 0, ended.output
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return ended, [event for event in events if event["event"] == "StragglerFound"]


@pytest.mark.parametrize(("kind", "rank"), cases("slow", REASONS, times=3))
def test_who_is_made_slow_is_named(tmp_path: Path, kind: str, rank: int) -> None:
    with limited_group() if kind == "quota" else contextlib.nullcontext() as group:
        ended, found = stragglers(tmp_path, kind, rank, *([str(group)] if group else []))
    assert found, ended.output
    assert {event["straggler"] for event in found} == {rank}, ended.output
    assert any(reason in event["text"] for event in found for reason in REASONS[kind]), found


@pytest.mark.proof
@pytest.mark.parametrize("time", range(20))
def test_nobody_is_named_where_nobody_is_slow(tmp_path: Path, time: int) -> None:
    ended, found = stragglers(tmp_path, "none", 0)
    assert not found, (time, ended.output)


def test_a_slow_rank_changes_no_bit(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    slow, _ = stragglers(tmp_path / "slow", "slow", 0)
    (tmp_path / "not").mkdir()
    plain, _ = stragglers(tmp_path / "not", "none", 0)
    assert slow.lines("[0] weights") == plain.lines("[0] weights") != []
