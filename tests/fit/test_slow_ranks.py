"""When a slow rank is named: once the kernel has said why, and not for one bad while."""

import numpy as np

from paceline.comm.process_facts import Facts
from paceline.comm.step_clock import NUM_NUMBERS, NUM_STEPS, Phase, StepClock
from paceline.events.bus import bus
from paceline.events.worker_events import Event, StragglerFound
from paceline.fit.step_times import StepTimes

MILLISECOND = 1_000_000


def told(seconds_of_facts: int, slow: int = 1) -> np.ndarray:
    """What two ranks tell of a step of 20 ms, of which one computes 15 and the other waits 10."""
    numbers = np.zeros((2, NUM_NUMBERS), np.int64)
    numbers[:, Phase.COMPUTE] = 5 * MILLISECOND
    numbers[:, Phase.COUNT] = MILLISECOND
    numbers[slow, Phase.COMPUTE] += 10 * MILLISECOND
    numbers[1 - slow, Phase.MESSAGES] += 10 * MILLISECOND
    numbers[:, NUM_STEPS] = 1
    facts = Facts(wall=seconds_of_facts * 1000 * MILLISECOND, cpu=seconds_of_facts * 950 * MILLISECOND)
    numbers[:, NUM_STEPS + 1 :] = facts
    return numbers


def named_in(steps: list[np.ndarray]) -> list[StragglerFound]:
    found: list[Event] = []
    times = StepTimes(0, StepClock())
    unsubscribe = bus.subscribe(found.append)
    try:
        for numbers in steps:
            times.hear(0, 2, numbers)
    finally:
        unsubscribe()
    return [event for event in found if isinstance(event, StragglerFound)]


def test_nobody_is_named_before_the_kernel_has_said_why() -> None:
    assert named_in([told(0)] * 100) == []


def test_what_the_kernel_said_once_stands_until_it_says_something_else() -> None:
    [event] = named_in([told(0)] * 15 + [told(1)] + [told(0)] * 84)
    assert event.straggler == 1
    assert event.reason == "it computes all the time: its core is slower, or its rows are more work"


def test_one_bad_while_is_not_enough() -> None:
    assert named_in([told(1, slow=number // 20 % 2) for number in range(100)]) == []
