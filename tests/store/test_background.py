"""Work off the step path."""

import threading

import pytest

from paceline.store.background import BackgroundWriter, Outcome

LIMIT_SECONDS = 120


class Slow:
    """Work that waits until it is told to go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.done: list[tuple[str, Outcome[str]]] = []

    def write(self, job: str) -> str:
        self.begun.release()
        assert self.go.acquire(timeout=LIMIT_SECONDS)
        if job.startswith("bad"):
            raise OSError(28, "No space left on device")
        return job.upper()

    def on_done(self, job: str, outcome: Outcome[str]) -> None:
        self.done.append((job, outcome))

    def results(self) -> list[tuple[str, str | None]]:
        return [(job, outcome.result) for job, outcome in self.done]


def test_jobs_are_done_one_after_the_other():
    slow = Slow()
    with BackgroundWriter(slow.write, slow.on_done) as writer:
        assert writer.is_idle
        writer.submit("a")
        assert slow.begun.acquire(timeout=LIMIT_SECONDS)
        writer.submit("b")
        assert not writer.is_idle
        assert not writer.flush(0)
        slow.go.release(2)
        assert writer.flush(LIMIT_SECONDS)
        assert writer.is_idle
    assert slow.results() == [("a", "A"), ("b", "B")]


def test_a_failure_is_told_and_the_next_job_is_done():
    slow = Slow()
    slow.go.release(2)
    with BackgroundWriter(slow.write, slow.on_done) as writer:
        writer.submit("bad")
        assert writer.flush(LIMIT_SECONDS)
        writer.submit("good")
    (_, failed), (_, good) = slow.done
    assert isinstance(failed.error, OSError)
    assert failed.result is None
    assert (good.error, good.result) == (None, "GOOD")


def test_whoever_cannot_take_a_failure_does_not_end_the_thread(caplog: pytest.LogCaptureFixture):
    slow = Slow()
    slow.go.release(2)

    def on_done(job: str, outcome: Outcome[str]) -> None:
        slow.on_done(job, outcome)
        if outcome.error:
            raise ValueError("the store's package has an error of its own")

    with BackgroundWriter(slow.write, on_done) as writer:
        writer.submit("bad")
        assert writer.flush(LIMIT_SECONDS)
        writer.submit("good")
        assert writer.flush(LIMIT_SECONDS)
    assert slow.results() == [("bad", None), ("good", "GOOD")]
    assert "an error of its own" in caplog.text


def test_leaving_finishes_what_waits():
    slow = Slow()
    slow.go.release(1)
    with BackgroundWriter(slow.write, slow.on_done) as writer:
        writer.submit("a")
    assert slow.results() == [("a", "A")]


def test_leaving_does_not_wait_for_ever():
    slow = Slow()
    with BackgroundWriter(slow.write, slow.on_done, patience_seconds=0) as writer:
        writer.submit("a")
        assert slow.begun.acquire(timeout=LIMIT_SECONDS)
    assert slow.done == []
    slow.go.release(1)
    assert writer.flush(LIMIT_SECONDS)
