"""A rank that is slow is named with its host."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import LAPTOP, TCP_ONLY, Lab

from straggling import REASONS, cases

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).parents[1] / "end_to_end" / "stragglers.py"
HOSTS = ("alpha", "beta")
LARGE_BATCHES = ("--env", "STRAGGLERS_BATCH=640")
"""Between hosts messages take longer: what a rank does besides must be most of a step, or others hardly wait."""


@pytest.fixture(scope="module")
def lab(may_make_secure_hosts: None) -> Iterator[Lab]:
    """Two hosts with a core each, and a laptop."""
    with Lab(2, ssh=True, laptop=True, own_cores=True) as lab:
        yield lab


@pytest.mark.parametrize(("kind", "rank"), cases("callback", ("spinner", "map", "callback"), times=2))
def test_who_is_made_slow_is_named_with_its_host(lab: Lab, tmp_path: Path, kind: str, rank: int) -> None:
    events = tmp_path / "events.jsonl"
    job = [
        "run",
        "--hosts",
        ",".join(f"{host}:1" for host in HOSTS),
        "--events",
        events,
        *LARGE_BATCHES,
        SCRIPT,
        kind,
        str(rank),
    ]
    ended = lab.start(LAPTOP, [sys.executable, "-m", "paceline", *job], folder=tmp_path, variables=TCP_ONLY).ended()
    assert ended.code == 0, ended.output
    told = [json.loads(line) for line in events.read_text().splitlines()]
    texts = [one["text"] for one in told if one["event"] == "StragglerFound"]
    assert texts, ended.output
    assert all(text.startswith(f"rank {rank} ({lab.address(HOSTS[rank])}) ") for text in texts), texts
    assert any(reason in text for text in texts for reason in REASONS[kind]), texts
