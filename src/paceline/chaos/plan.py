"""Faults to inject into a job, as values: which fault, into which rank, when. Pure: no clock, no process.

    fit ──► restore ──► [step ─ step ─ snapshot written ─ step …] ─ validation ─ … ─ last step ──► end
     │restart      │start    │step        │snapshot                  │validation        │end

Generation 1 has no restart phase. `fault_text.py` parses ``--chaos``; ``resilience/fault_injection.py`` injects.
"""

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from paceline.cluster.spec import WORKER, Task


class Action(StrEnum):
    """What happens to a rank."""

    KILL = "kill"
    """SIGKILL."""
    STOP = "stop"
    """SIGSTOP: the process exists, but does nothing."""
    TERM = "term"
    """SIGTERM, as a scheduler sends it to preempt a job."""
    EXCEPTION = "exception"
    """An exception in `fit`; in phase `SNAPSHOT` in the thread that writes the snapshot, and training continues."""
    DISK_FULL = "disk-full"
    """From the step on, its next `FULL_FOR_SNAPSHOTS` snapshots cannot be written: no space left on the disk."""
    SLOW = "slow"
    """From then on it is stopped again and again, so that all that it does takes `Fault.factor` times as long."""
    CORRUPT_SNAPSHOT = "corrupt-snapshot"
    """One bit of the newest snapshot on the disk is flipped, then SIGKILL."""


class Phase(StrEnum):
    """Where in a generation a fault is injected."""

    START = "start"
    """Before the first step of the generation, after the state has been restored."""
    STEP = "step"
    """After a step, before its snapshot."""
    VALIDATION = "validation"
    """After the first batch of a validation."""
    SNAPSHOT = "snapshot"
    """In the middle of writing a part of a snapshot."""
    RESTART = "restart"
    """Where a generation from 2 on enters `fit`, before anything is restored."""
    END = "end"
    """After the last step of a `fit`, before its last snapshot."""


FULL_FOR_SNAPSHOTS = 2
"""How many snapshots of the rank fail before the disk has room again."""

AT_A_STEP_ONLY = (Action.DISK_FULL, Action.CORRUPT_SNAPSHOT)
"""Actions that have no other phase."""

WITHOUT_STEP = (Phase.START, Phase.RESTART)
"""Phases that come once in a generation, whatever the step."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Where training is: `step` steps of the whole job are done, `before` were when this phase was last asked about."""

    phase: Phase
    step: int
    before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    >>> fault = Fault(action=Action.KILL, phase=Phase.STEP, rank=1, step=50)
    >>> str(fault)
    'kill:rank=1,step=50,generation=1'
    >>> fault.is_due(Moment(Phase.STEP, step=50, before=49), began_at=0)
    True

    Args:
        action: What happens.
        phase: Where.
        rank: To whom; None: to any, which `Plan.faults_of` draws.
        server: To this worker or parameter server outside of the world in place of a rank; `rank`, the chief's, counts
            the steps, and the launcher injects the fault.
        step: Steps of the whole job, as snapshots count them. In phase `STEP` exactly this one, in the others the first
            occasion from it on; None: the first occasion.
        generation: In which one.
        counts_new_steps: Whether `step` counts from where the generation begins.
        factor: How many times as slow the rank becomes, more than 1; 1 with any other action.
    """

    action: Action
    phase: Phase
    rank: int | None = 0
    server: Task | None = None
    step: int | None = None
    generation: int = 1
    counts_new_steps: bool = False
    factor: float = 1.0

    @property
    def ends_generation(self) -> bool:
        """Whether the fault ends the generation."""
        survives_it = self.action is Action.EXCEPTION and self.phase is Phase.SNAPSHOT
        replaces_it = self.server is not None and self.server.type == WORKER
        return self.action not in (Action.DISK_FULL, Action.SLOW) and not survives_it and not replaces_it

    def is_due(self, moment: Moment, began_at: int) -> bool:
        """Whether it is injected now, in a generation that began after the step `began_at`."""
        if moment.phase is not self.phase:
            return False
        step = (self.step or 0) + (began_at if self.counts_new_steps else 0)
        if self.phase is Phase.STEP:
            return moment.before < step <= moment.step
        return moment.step >= step

    def is_missed(self, began_at: int) -> bool:
        """Whether a generation that began after `began_at` is beyond its step."""
        return self.phase is Phase.STEP and not self.counts_new_steps and (self.step or 0) <= began_at

    def __str__(self) -> str:
        conditions = [f"rank={'any' if self.rank is None else self.rank}"]
        if self.server is not None:
            conditions = [f"{self.server.type}={self.server.index}"]
        if self.step is not None:
            conditions.append(f"step={self.step}")
        if self.phase is not Phase.STEP:
            conditions.append(f"phase={self.phase}")
        if self.action is Action.SLOW:
            conditions.append(f"factor={self.factor:g}")
        return f"{self.action}:{','.join(conditions)},generation={self.generation}"


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """A fault in each generation.

    Args:
        seed: Decides steps and ranks.
        every: About how many steps a generation makes before it: from half to one and a half times as many.
        action: What happens.
    """

    seed: int
    every: int
    action: Action = Action.KILL

    def fault_of(self, generation: int, world_size: int) -> Fault:
        """The fault of `generation`, counted from its first step."""
        drawn = random.Random(f"{self.seed}/{generation}")
        steps = drawn.randint(max(1, self.every // 2), max(1, self.every * 3 // 2))
        rank = drawn.randrange(world_size)
        return Fault(
            action=self.action, phase=Phase.STEP, rank=rank, step=steps, generation=generation, counts_new_steps=True
        )

    def __str__(self) -> str:
        return f"random:seed={self.seed},every={self.every},action={self.action}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All faults of a job.

    >>> plan = Plan((Fault(action=Action.KILL, phase=Phase.END, rank=None),))
    >>> [fault.rank in (0, 1) for fault in plan.faults_of(generation=1, world_size=2, seed=7)]
    [True]
    """

    faults: tuple[Fault, ...] = ()
    random: RandomFaults | None = None

    def faults_of(self, *, generation: int, world_size: int, seed: int) -> tuple[Fault, ...]:
        """The faults of `generation`; "any" is replaced by a random rank, the same on all ranks."""
        own = [
            replace(fault, rank=random.Random(f"{seed}/{number}").randrange(world_size))
            if fault.rank is None
            else fault
            for number, fault in enumerate(self.faults)
            if fault.generation == generation
        ]
        if self.random is not None:
            own.append(self.random.fault_of(generation, world_size))
        return tuple(own)

    @property
    def num_deaths(self) -> int | None:
        """How many generations end by a fault; None: every one."""
        return None if self.random is not None else len({f.generation for f in self.faults if f.ends_generation})

    def __str__(self) -> str:
        return ";".join(map(str, [*self.faults, *([self.random] if self.random else [])]))
