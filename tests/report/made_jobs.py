"""Jobs that were never run: clocks of ranks that only the test moves, and the records that they leave."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.comm.process_facts import Facts, ProcessFacts
from paceline.comm.step_account import StepAccount
from paceline.comm.step_clock import Phase, StepClock
from paceline.comm.step_recorder import StepRecorder
from paceline.events.head_events import ClockMeasured, GenerationBegan, JobEnded, WorkerStarted
from paceline.events.json_lines import JsonLines
from paceline.events.worker_events import EpochEnded, Event, StepDone, StepsTimed
from paceline.report import kept_job

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
JOB_ID, HEAD = "0123456789abcdef", "a"


def refuse(reason: str) -> None:
    raise AssertionError(reason)


@dataclass
class MadeJob:
    """A job in a folder; times are nanoseconds of the launcher's clock.

    Args:
        folder: Of the records.
        hosts: By rank.
        ahead: By host, how far its clock is ahead at a time.
        error: Of each measurement of it.
        world_size: How many ranks the job has, if more than these are not made.
    """

    folder: Path
    hosts: list[str]
    ahead: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    error: int = 200 * MICROSECOND
    world_size: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        kept_job.begin(self.folder, JOB_ID, "train.py", HEAD)
        self.began_at = kept_job.read_job(self.folder).about.monotonic_ns
        self.times = [self.began_at] * len(self.hosts)
        self.random = random.Random(1)
        self.recorders, self.clocks = [], []
        for rank, host in enumerate(self.hosts):

            def now(rank: int = rank, host: str = host) -> int:
                time = self.times[rank]
                return time + self.ahead.get(host, lambda _: 0)(time)

            size = max(len(self.hosts), self.world_size)
            identity = WorkerIdentity(Task(WORKER, rank), rank, size, 0, 1, 1, JOB_ID, 0)
            recorder = StepRecorder(self.folder, identity, host, refuse, now)
            (self.folder / "ranks").mkdir(exist_ok=True)
            clock = StepClock(now, ProcessFacts(Facts, lambda: 0))
            clock.note = recorder.note
            clock.begin()
            self.recorders.append(recorder)
            self.clocks.append(clock)
        self.account = StepAccount(len(self.hosts))
        self.clocks[0].hear = lambda first, _, told: self.account.hear(first, told) and None
        self.sink = JsonLines(self.folder / kept_job.EVENTS, refuse, lambda: max(self.times) / 1e9)
        self.sink.__enter__()
        self.tell(GenerationBegan(1, len(self.hosts)))
        for rank, host in enumerate(self.hosts):
            self.tell(WorkerStarted(rank, host, 100 + rank, f"worker {rank}"))

    def tell(self, event: Event) -> None:
        self.sink(event)

    def measure(self) -> None:
        """The launcher measures the clocks of the other hosts, as wrongly as it says."""
        for host in dict.fromkeys(self.hosts):
            if host != HEAD:
                now = max(self.times)
                wrong = self.random.randint(-self.error, self.error)
                offset = self.ahead[host](now) + wrong
                self.tell(ClockMeasured(host, now / 1e9, offset / 1e9, self.error / 1e9))

    def spend(self, rank: int, nanoseconds: int) -> None:
        self.times[rank] += nanoseconds

    def meet(self) -> None:
        """All ranks leave a message together."""
        self.times[:] = [max(self.times) + 50 * MICROSECOND] * len(self.times)

    def steps(self, number: int, slow: int | None = None, messages: int = 1) -> None:
        """Takes steps; `slow` computes for twice as long."""
        ranks = range(len(self.hosts))

        def about(nanoseconds: int) -> int:
            return int(nanoseconds * self.random.uniform(0.8, 1.2))

        for _ in range(number):
            self.step += 1
            for rank in ranks:
                self.clocks[rank].step_begins()
                self.spend(rank, about(300 * MICROSECOND))
            told = [self.clocks[rank].count_begins(rank, len(self.hosts)) for rank in ranks]
            self.meet()
            for rank in ranks:
                self.clocks[rank].count_ended(len(self.hosts), np.sum(told, 0))
            for _ in range(messages):
                for rank in ranks:
                    self.spend(rank, about(2 * MILLISECOND) * (2 if rank == slow else 1))
                    self.clocks[rank].message_begins()
                self.meet()
                for rank in ranks:
                    self.clocks[rank].message_ended()
            for rank in ranks:
                self.spend(rank, about(500 * MICROSECOND))
                self.clocks[rank].step_ended()
                with self.clocks[rank].during(Phase.CALLBACKS):
                    self.spend(rank, about(80 * MICROSECOND))
                self.recorders[rank].hear(StepDone(rank, self.step, 0))
                self.spend(rank, about(20 * MICROSECOND))

    def write(self, *, is_last: bool = False) -> None:
        """What the threads of the ranks do once a second."""
        self.recorders[0].waited(self.account.settled())
        for recorder in self.recorders:
            recorder.flush(is_last=is_last)

    def end_epoch(self, epoch: int) -> None:
        self.tell(EpochEnded(0, epoch, self.step, 1.0, {"loss": 1 / (epoch + 1), "val_loss": 2 / (epoch + 1)}))

    def end(self) -> kept_job.KeptJob:
        self.write(is_last=True)
        shares = {"input": 0.3, "compute": 0.5, "waiting": 0.2}
        self.tell(StepsTimed(0, self.step, 0.004, shares, 1, True, "step 4 ms: input 30 %"))
        self.tell(JobEnded(0, 12.0, self.step, 100.0, 0, 0, 0.0, 1.0))
        self.sink.__exit__(None, None, None)
        return kept_job.read_job(self.folder)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
