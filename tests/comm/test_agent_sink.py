"""Which events of a worker its agent hears, and when."""

from paceline.comm.agent_sink import AgentSink
from paceline.events.head_events import GenerationBegan
from paceline.events.worker_events import (
    BatchDone,
    EpochBegan,
    EpochEnded,
    FaultInjected,
    FitEnded,
    OfRank,
    StepDone,
    TraceBegan,
)


def told(*events: tuple[float, OfRank]) -> list[OfRank]:
    """What is sent of events, each with its time."""
    now, sent = [0.0], []
    sink = AgentSink(sent.append, clock=lambda: now[0])
    for now[0], event in events:
        sink(event)
    return sent


def test_steps_are_told_every_50_ms() -> None:
    steps = [(100 + step / 64, StepDone(0, step, 0)) for step in range(1, 20)]
    assert [event.step for event in told(*steps)] == [1, 5, 9, 13, 17]


def test_the_exact_step_is_told_before_anything_else() -> None:
    """By it an error that comes again is told from one that does not."""
    others = FitEnded(0, 3, True), FaultInjected(0, "kill"), EpochBegan(0, 1, 3), EpochEnded(0, 0, 3, 1.0, {})
    for other in others:
        steps = [(100.0, StepDone(0, step, 0)) for step in (1, 2, 3)]
        assert told(*steps, (100.0, other), (100.0, other)) == [StepDone(0, 1, 0), StepDone(0, 3, 0), other, other]


def test_a_step_after_a_trace_is_told_at_once_and_a_trace_once() -> None:
    """As long as a rank traces, no step is missed; so the agent must hear that it does no longer."""
    trace, step = TraceBegan(0), StepDone(0, 1, 0)
    assert told((1.0, step), (1.0, trace), (1.0, trace), (1.01, step), (1.02, step)) == [step, trace, step]


def test_a_rank_that_is_killed_while_it_traces_has_told_its_last_step() -> None:
    first, second = StepDone(0, 1, 0), StepDone(0, 2, 0)
    assert told((1.0, first), (1.01, second), (1.02, TraceBegan(0))) == [first, second, TraceBegan(0)]


def test_batches_are_signs_of_life_as_steps_are() -> None:
    batches = [(float(second), BatchDone(0, 5, 0, is_validation=True)) for second in range(3)]
    assert len(told(*batches)) == 3


def test_what_the_head_emits_is_not_sent() -> None:
    sent: list[object] = []
    AgentSink(sent.append)(GenerationBegan(1, 1))
    assert sent == []
