"""The bus of a process, and what becomes of a sink that fails."""

import logging

import pytest

from paceline.events.bus import Bus, guarded
from paceline.events.worker_events import Event, FitEnded, StepDone


def test_every_sink_gets_every_event_in_order_until_its_subscription_ends() -> None:
    bus, first, second = Bus(), [], []
    end_first = bus.subscribe(first.append)
    bus.subscribe(second.append)
    bus.emit(StepDone(0, 1, 0))
    end_first()
    end_first()
    bus.emit(FitEnded(0, 1))
    assert first == [StepDone(0, 1, 0)]
    assert second == [StepDone(0, 1, 0), FitEnded(0, 1)]


def test_a_sink_may_emit_and_end_itself() -> None:
    """`--chaos` emits that it injects a fault while it is told of a step."""
    bus, seen = Bus(), []

    def once(event: Event) -> None:
        end()
        bus.emit(FitEnded(0, 1))

    end = bus.subscribe(once)
    bus.subscribe(seen.append)
    bus.emit(StepDone(0, 1, 0))
    assert seen == [FitEnded(0, 1), StepDone(0, 1, 0)]


def test_a_users_sink_that_fails_stops_nothing_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    bus, seen = Bus(), []

    def fail(event: Event) -> None:
        seen.append(event)
        raise OSError("no such folder")

    bus.subscribe(guarded(fail))
    with caplog.at_level(logging.ERROR):
        bus.emit(StepDone(0, 1, 0))
        bus.emit(StepDone(0, 2, 0))
    assert seen == [StepDone(0, 1, 0)]
    [record] = caplog.records
    assert record.getMessage().endswith("[event-sink]")
    assert record.exc_info is not None


def test_an_exception_of_a_sink_that_is_not_guarded_reaches_the_emitter() -> None:
    """By that `--chaos` injects an exception into `fit`."""
    bus = Bus()

    def fail(event: Event) -> None:
        raise RuntimeError("chaos")

    bus.subscribe(fail)
    with pytest.raises(RuntimeError, match="chaos"):
        bus.emit(StepDone(0, 1, 0))
