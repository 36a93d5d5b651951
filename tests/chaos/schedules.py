"""Which faults strike which job: the matrix, random schedules, and the small part of it for every check. Pure.

Faults that end a generation come one a generation, so one run of the launcher serves many cells of the matrix.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

ACTIONS = ("kill", "stop", "exception", "term")
PHASES = ("start", "restart", "step", "validation", "snapshot", "end")
STEPS = 40
"""Of the jobs; `EarlyStopping` may take fewer."""

SNAPSHOT_EVERY, STEPS_PER_EPOCH = 5, 8
_SNAPSHOT_FROM = 18
"""So that the snapshot of step 20 is struck."""

_STRUCK_STEP = 7
_LAST_RANDOM_STEP = 30
"""Early stopping comes later."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One fault of a case."""

    action: str
    phase: str
    rank: int

    @property
    def text(self) -> str:
        """As ``--chaos`` takes it, and without a generation."""
        where = {"step": f"step={_STRUCK_STEP}", "snapshot": f"phase=snapshot,step={_SNAPSHOT_FROM}"}
        return f"{self.action}:rank={self.rank},{where.get(self.phase, f'phase={self.phase}')}"


@dataclass(frozen=True, slots=True)
class Case:
    """A job, and what strikes it.

    Args:
        name: For people.
        job: Which of ``chaos_jobs.py``.
        num_workers: How many.
        lives: The text of ``--chaos`` for each run of the same command; all but the last are told to leave. The last
            one may have none.
        cells: The cells of the matrix that it serves.
    """

    name: str
    job: str
    num_workers: int
    lives: tuple[str, ...]
    cells: tuple[Cell, ...] = ()


def matrix(jobs: Sequence[str]) -> Iterator[Case]:
    """Each rank of two workers, action and phase; of three workers the middle and the last rank, killed."""
    turn = 0
    for num_workers, ranks, actions in ((2, (0, 1), ACTIONS), (3, (1, 2), ("kill",))):
        for action in actions:
            for rank in ranks:
                cells = tuple(Cell(action, phase, rank) for phase in PHASES)
                job = jobs[turn % len(jobs)]
                turn += 1
                yield Case(f"{action} rank {rank}", job, num_workers, lives_of(cells), cells)


def of_replicas() -> Iterator[Case]:
    """Two stages of two replicas: each rank killed in every phase, and each other action once on another rank."""
    strikes = [("kill", rank) for rank in range(4)] + [("stop", 1), ("exception", 3), ("term", 2)]
    for action, rank in strikes:
        cells = tuple(Cell(action, phase, rank) for phase in PHASES)
        yield Case(f"pipeline {action} rank {rank}", "pipeline", 4, lives_of(cells), cells)


def lives_of(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The runs of the command that `cells` need: a term ends one, and a restart needs a death in front of it."""
    lives: list[list[str]] = [[]]
    can_restart = False
    for cell in cells:
        if cell.phase == "restart" and not can_restart:
            lives[-1].append(f"kill:rank={cell.rank},phase=start")
        lives[-1].append(cell.text)
        can_restart = cell.action in ("kill", "stop") or (cell.action == "exception" and cell.phase != "snapshot")
        if cell.action == "term":
            lives.append([])
    return tuple(";".join(life) for life in lives)


def random_schedules(jobs: Sequence[str], count: int, seed: int = 1) -> Iterator[Case]:
    """`count` cases of up to four faults each, the jobs in turn; a quarter is told to leave at last, and run again."""
    drawn = random.Random(seed)
    for number in range(count):
        texts: list[str] = []
        step = 0
        for _ in range(drawn.randint(2, 4)):
            step, text = _random_fault(drawn, step + drawn.randint(2, 8), is_first=not texts)
            if step > _LAST_RANDOM_STEP:
                break
            texts.append(text)
        lives = [";".join(texts)]
        if drawn.random() < 0.25:
            lives = [f"{lives[0]};term:rank={drawn.randrange(2)},step={step + 2}", ""]
        yield Case(f"random {number + 1}", jobs[number % len(jobs)], 2, tuple(lives))


def _random_fault(drawn: random.Random, step: int, *, is_first: bool) -> tuple[int, str]:
    """A fault from `step` on, and the step that it strikes after."""
    rank = drawn.randrange(2)
    kind = drawn.choice(("kill", "kill", "stop", "exception", "corrupt-snapshot", "disk-full", "phase"))
    if kind != "phase":
        return step, f"{kind}:rank={rank},step={step}"
    phase = drawn.choice(("validation", "snapshot") if is_first else ("start", "restart", "validation", "snapshot"))
    if phase in ("start", "restart"):
        return step, f"kill:rank={rank},phase={phase}"
    every = STEPS_PER_EPOCH if phase == "validation" else SNAPSHOT_EVERY
    step = -(-step // every) * every
    return step, f"kill:rank={rank},phase={phase},step={step}"


_SUBSET = (
    "kill start 0, stop step 0, exception validation 1, stop restart 1, kill snapshot 1, term end 0",
    "stop start 1, exception restart 0, term step 1, kill validation 0, stop snapshot 0, kill end 1",
)


EVERY_RANK = "kill start 0, exception restart 1, kill step 1, kill validation 2, kill snapshot 3, term end 2"


def every_rank_of_replicas() -> Case:
    """One run in which each rank of two stages of two replicas is killed, each at another moment."""
    words = [cell.split() for cell in EVERY_RANK.split(", ")]
    cells = tuple(Cell(action, phase, int(rank)) for action, phase, rank in words)
    return Case("every rank of a pipeline", "pipeline", 4, lives_of(cells), cells)


def subset(jobs: Sequence[str]) -> Iterator[Case]:
    """Two runs in which each phase and each action meets each of two jobs and each rank, in twelve different cells."""
    for number, (job, text) in enumerate(zip(jobs, _SUBSET, strict=True), 1):
        words = [cell.split() for cell in text.split(", ")]
        cells = tuple(Cell(action, phase, int(rank)) for action, phase, rank in words)
        yield Case(f"subset {number}", job, 2, lives_of(cells), cells)
