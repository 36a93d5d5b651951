"""The numbers of a report: where each rank's time went, and who waited for whom over time; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.observe.step_files import BLOCK, StepFile
from paceline.report.host_clocks import HostClock
from paceline.report.kept_job import KeptJob
from paceline.report.step_spans import blocks_of

WORDS: dict[str, tuple[str, ...]] = {
    "input": ("input",),
    "input and compute": ("whole",),
    "compute": ("compute",),
    "update": ("update",),
    "waiting for others": ("others",),
    "waiting": (),
    "messages": ("count", "messages", "agreement"),
    "callbacks": ("callbacks",),
    "snapshots": ("snapshot",),
    "between steps": ("rest",),
    "start": ("start",),
    "validation": ("validation",),
}
"""The phases of a rank by the word for them; waiting comes out of the messages."""

HOSTS_FROM = 16
"""From so many ranks on, they are shown by host."""


@dataclass(frozen=True)
class WaitingRow:
    """Who has waited in some steps; nanoseconds, of the launcher's clock."""

    first_step: int
    last_step: int
    began: int
    ended: int
    waited: tuple[int, ...]
    """How long each rank has waited."""
    blamed: tuple[int, ...]
    """How long all others together have waited for each rank."""

    @property
    def num_steps(self) -> int:
        """Of how many steps, at least one."""
        return max(self.last_step - self.first_step + 1, 1)


def waiting_of(file: StepFile, clock: HostClock) -> Iterator[WaitingRow]:
    """The rows of a file of the chief's account."""
    for row in file.rows():
        first, last, began, ended = row[: len(BLOCK)]
        numbers = tuple(row[len(BLOCK) :])
        half = len(numbers) // 2
        yield WaitingRow(first, last, clock.here(began), clock.here(ended), numbers[:half], numbers[half:])


def all_waiting(job: KeptJob) -> list[WaitingRow]:
    """Those of all generations."""
    return [row for file in job.of("waiting") for row in waiting_of(file, job.clock_of(file))]


def seconds_by_rank(job: KeptJob) -> dict[int, dict[str, float]]:
    """By rank and word, what its time was spent with, in all generations."""
    seconds: dict[int, dict[str, float]] = {}
    for file in job.of("blocks"):
        own = seconds.setdefault(file.header.rank, dict.fromkeys(WORDS, 0.0))
        for block in blocks_of(file):
            for word, phases in WORDS.items():
                own[word] += sum(block.by_phase[phase] for phase in phases) / 1e9
    for row in all_waiting(job):
        for rank, waited in enumerate(row.waited):
            if rank in seconds:
                part = min(waited / 1e9, seconds[rank]["messages"])
                seconds[rank]["waiting"] += part
                seconds[rank]["messages"] -= part
    return dict(sorted(seconds.items()))


def groups_of(job: KeptJob, ranks: Iterable[int]) -> dict[str, list[int]]:
    """What has a row of its own in the charts: each rank, or of many ranks each host."""
    ranks = list(ranks)
    if len(ranks) < HOSTS_FROM:
        return {f"rank {rank}": [rank] for rank in ranks}
    hosts = {file.header.rank: file.header.host for file in job.of("blocks")}
    groups: dict[str, list[int]] = {}
    for rank in ranks:
        groups.setdefault(f"host {hosts[rank]}", []).append(rank)
    return groups


def means(
    by_rank: Mapping[int, Mapping[str, float]], groups: Mapping[str, Sequence[int]]
) -> dict[str, dict[str, float]]:
    """By group and word, the mean over its ranks."""
    return {
        name: {word: sum(by_rank[rank][word] for rank in ranks) / len(ranks) for word in WORDS}
        for name, ranks in groups.items()
    }


@dataclass(frozen=True)
class HeatMap:
    """A number from 0 to 1 for each group and each of some equal times; None: nothing is known."""

    rows: dict[str, list[float | None]]
    began: int
    ended: int


def heat_maps(rows: Sequence[WaitingRow], groups: Mapping[str, Sequence[int]], columns: int) -> tuple[HeatMap, HeatMap]:
    """Which part of the time each group has waited, and was waited for (by each of the others, on average)."""
    began, ended = min(row.began for row in rows), max(row.ended for row in rows)
    width = max((ended - began) / columns, 1.0)
    covered = [0.0] * columns
    waited = {name: [0.0] * columns for name in groups}
    blamed = {name: [0.0] * columns for name in groups}
    for row in rows:
        lasted = max(row.ended - row.began, 1)
        others = max(len(row.waited) - 1, 1)
        means_of_row = {
            name: (
                sum(row.waited[rank] for rank in ranks if rank < len(row.waited)) / len(ranks) / lasted,
                sum(row.blamed[rank] for rank in ranks if rank < len(row.blamed)) / len(ranks) / others / lasted,
            )
            for name, ranks in groups.items()
        }
        first, last = int((row.began - began) / width), int((row.ended - began) / width)
        for column in range(first, min(last, columns - 1) + 1):
            left, right = began + column * width, began + (column + 1) * width
            overlap = max(min(row.ended, right) - max(row.began, left), 0.0)
            covered[column] += overlap
            for name, (own, others_for_it) in means_of_row.items():
                waited[name][column] += overlap * own
                blamed[name][column] += overlap * others_for_it

    def shares(sums: Mapping[str, list[float]]) -> dict[str, list[float | None]]:
        return {
            name: [min(number / time, 1.0) if time else None for number, time in zip(numbers, covered, strict=True)]
            for name, numbers in sums.items()
        }

    return HeatMap(shares(waited), began, ended), HeatMap(shares(blamed), began, ended)
