"""What the user reads of the events of a job. Pure."""

from paceline.events.head_events import (
    HangFound,
    JobAccount,
    JobEnded,
    LastWorkBegan,
    Notice,
    PreemptionBegan,
    RanksWaiting,
    Recovered,
    Restarted,
    StopBegan,
    StuckFound,
)
from paceline.events.worker_events import Event
from paceline.launcher.generations.account import account_text
from paceline.launcher.generations.names import ranks_text
from paceline.launcher.generations.report import counted


def event_lines(event: Event) -> list[str]:
    """What the user reads of an event; nothing of most.

    >>> event_lines(Restarted(2, 0.5)), event_lines(Event())
    (['paceline: generation 2 begins in 0.5 s'], [])
    """
    match event:
        case Notice(lines=lines):
            return list(lines)
        case RanksWaiting():
            text = _waiting_text(event)
        case HangFound(who=who, seconds=seconds):
            text = f"no step for {seconds:.0f} s; the stacks of {who}:"
        case StuckFound(process=process, reason=reason):
            text = f"{process} {reason}; ending it. [hang]"
        case PreemptionBegan():
            text = "told to stop: a last snapshot is written if the step ends in time; a second signal kills at once"
        case LastWorkBegan(processes=processes, seconds=seconds):
            text = f"training has ended; waiting up to {seconds:g} s for the last work of {', '.join(processes)}"
        case StopBegan(reason=reason):
            text = reason
        case Recovered():
            text = _recovered_text(event)
        case Restarted(generation=generation, pause_seconds=seconds):
            text = f"generation {generation} begins{f' in {seconds:g} s' if seconds else ''}"
        case JobAccount():
            text = account_text(event)
        case JobEnded():
            text = _ended_text(event)
        case _:
            text = ""
    return [f"paceline: {text}"] if text else []


def is_for_all_hosts(event: Event) -> bool:
    """Whether the users of other nodes (``--nnodes``) read it, too."""
    if isinstance(event, Notice):
        return event.is_for_all_hosts
    return isinstance(event, Restarted | JobAccount | JobEnded)


def _recovered_text(event: Recovered) -> str:
    """
    >>> _recovered_text(Recovered(2, 8, 1, 1.5, "host b is silent"))
    'host b is silent; generation 2 resumes from step 8 (1 step lost, 1.5 s)'
    """
    where = f"resumes from step {event.step}" if event.step else "starts from step 0, without a snapshot"
    lost = f"{counted(event.num_lost_steps, 'step')} lost, {event.lost_seconds:.1f} s"
    return f"{event.reason}; generation {event.generation} {where} ({lost})"


def _ended_text(event: JobEnded) -> str:
    """What was done, if all is well; and what restarts have cost.

    >>> _ended_text(JobEnded(0, 14.0, 41, 20.0, 0, 0, lost_seconds=0, goodput=1, start_seconds=9))
    '41 steps, 20 a second; 14.0 s in all, 9.0 s of it to start'
    >>> _ended_text(JobEnded(75, 14.0, 41, 20.0, 1, num_repeated_steps=2, lost_seconds=2.8, goodput=0.8))
    '1 restart, 2 steps done again, 2.8 s lost: goodput 80.0 %'
    """
    parts = []
    if event.exit_code == 0 and event.num_steps > 0:
        rate = "" if event.steps_per_second is None else f", {event.steps_per_second:.3g} a second"
        start = "" if event.start_seconds is None else f", {event.start_seconds:.1f} s of it to start"
        parts += [f"{counted(event.num_steps, 'step')}{rate}", f"{event.seconds:.1f} s in all{start}"]
    if event.num_restarts:
        restarts, again = counted(event.num_restarts, "restart"), counted(event.num_repeated_steps, "step")
        lost = f"{event.lost_seconds:.1f} s lost: goodput {100 * event.goodput:.1f} %"
        parts.append(f"{restarts}, {again} done again, {lost}")
    return "; ".join(parts)


def _waiting_text(event: RanksWaiting) -> str:
    has = "has" if len(event.missing) == 1 else "have"
    waits = "waits" if len(event.waiting) == 1 else "wait"
    waiting, missing = ranks_text(event.waiting), ranks_text(event.missing)
    return (
        f"{missing} {has} not created a strategy or called fit yet, {event.seconds:.0f} s after the start; "
        f"{waiting} {waits} for {missing}"
    )
