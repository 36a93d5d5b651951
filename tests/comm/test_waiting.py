"""A patient wait sees the answer, however long it takes to come."""

import itertools
import threading

import pytest

from paceline.comm.window_meeting import wait_until


@pytest.mark.parametrize("questions", [1, 2, 99, 100, 101, 2_100, 2_101, 2_110])
def test_asks_until_the_answer_is_yes(questions: int) -> None:
    asked = itertools.count(1)
    wait_until(lambda: next(asked) == questions)
    assert next(asked) == questions + 1


def test_other_threads_run_meanwhile() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.set)
    thread.start()
    wait_until(done.is_set)
    thread.join()
