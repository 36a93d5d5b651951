"""Ranks in shared memory tell each other what they are doing."""

import threading
from pathlib import Path

import numpy as np
import pytest

from paceline.comm.window_meeting import WindowMeeting, mark_of
from paceline.errors import DesynchronizedError
from ranks import run_ranks


def _meetings(size: int) -> list[WindowMeeting]:
    headers = tuple([memoryview(np.zeros(2, np.int64)) for _ in range(size)] for _ in range(2))
    return [
        WindowMeeting(rank, (headers[0], headers[1]), fence=lambda: None, progress=lambda: None, lines=lambda: "")
        for rank in range(size)
    ]


def _in_threads(meetings: list[WindowMeeting], calls: list[str], idly: bool = False) -> list[str]:
    """What each rank is told when rank r makes call r."""
    told = [""] * len(meetings)

    def run(rank: int) -> None:
        try:
            (meetings[rank].meet_idly if idly else meetings[rank].meet)(mark_of(calls[rank], ["f4"]))
        except DesynchronizedError as fault:
            told[rank] = str(fault)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(meetings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return told


def test_ranks_in_the_same_call_go_on() -> None:
    meetings = _meetings(3)
    for number in range(200):
        assert _in_threads(meetings, ["all_reduce"] * 3, idly=number % 50 == 0) == [""] * 3


def test_ranks_in_different_calls_are_all_told_who_does_what() -> None:
    first, second, third = _in_threads(_meetings(3), ["all_reduce", "all_reduce", "barrier"])
    assert first.startswith("rank 0 is in all_reduce, but rank 2 is in barrier: the ranks do not make the same calls.")
    assert second.startswith("rank 1 is in all_reduce, but rank 2 is in barrier")
    assert third.startswith("rank 2 is in barrier, but rank 0 is in all_reduce")


def test_a_rank_is_alone_until_the_last_has_come() -> None:
    early, late = _meetings(2)
    entered = threading.Event()
    passed = threading.Event()

    def run() -> None:
        entered.set()
        early.meet(mark_of("barrier"))
        passed.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert entered.wait(60)
    assert not passed.wait(0.05)
    late.meet(mark_of("barrier"))
    assert passed.wait(60)
    thread.join(60)


def test_marks_tell_signatures_apart() -> None:
    marks = [
        mark_of(kind, signature) for kind in ("all_reduce", "broadcast") for signature in (None, [(2, 3)], [(3, 2)])
    ]
    assert len(set(marks)) == len(marks)


@pytest.mark.processes
def test_a_rank_that_ends_early_is_named() -> None:
    chief, other = run_ranks(Path(__file__).with_name("ending_rank.py"), 2, timeout_seconds=60)
    assert chief.stdout.startswith(
        "rank 0 is in its exit (its script has come to the end), but rank 1 is in all_reduce"
    ), chief
    assert other.stdout.startswith("rank 1 is in all_reduce, but rank 0 is in its exit"), other
