"""Which snapshots stay: the newest, one of every so many steps, and the best by a metric. Pure.

newest:2,best:3:val_loss      a snapshot stays if one of the policies keeps it
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.value_checks import LOWER_IS_BETTER, RETENTION
from paceline.store.manifest import SnapshotInfo

METRICS = "metrics"
"""In the notes: the logs of the newest epoch that had ended, numbers by name."""
METRICS_EPOCH = "metrics_epoch"
"""In the notes: which epoch that was, from 0."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest `count`."""

    count: int

    def kept(self, newest_first: Sequence[SnapshotInfo]) -> Sequence[SnapshotInfo]:
        """Those that stay."""
        return newest_first[: self.count]


@dataclass(frozen=True, slots=True)
class Every:
    """The first one at or after each multiple of `steps`."""

    steps: int

    def kept(self, newest_first: Sequence[SnapshotInfo]) -> Sequence[SnapshotInfo]:
        """Those that stay."""
        first = {info.step // self.steps: info for info in newest_first}  # of each interval, the oldest is the last
        return [info for interval, info in first.items() if interval]


@dataclass(frozen=True, slots=True)
class Best:
    """Those with the `count` best values of a metric, one for each epoch; of equal ones, the older."""

    count: int
    metric: str
    is_lower_better: bool

    def kept(self, newest_first: Sequence[SnapshotInfo]) -> Sequence[SnapshotInfo]:
        """Those that stay."""
        # A snapshot within an epoch has the metrics of the epoch before; the one closest to that epoch's end counts.
        of_epochs = {_epoch(info): info for info in newest_first if self._value(info) is not None}
        oldest_first = sorted(of_epochs.values(), key=lambda info: info.order)
        return sorted(oldest_first, key=lambda info: self._value(info) or 0.0)[: self.count]

    def _value(self, info: SnapshotInfo) -> float | None:
        """The smaller, the better; None: not known, or not a number."""
        metrics = info.notes.get(METRICS)
        value = metrics.get(self.metric) if isinstance(metrics, dict) else None
        if not isinstance(value, int | float) or math.isnan(value):
            return None
        return value if self.is_lower_better else -value


@dataclass(frozen=True, slots=True)
class Retention:
    """Policies, of which each keeps some snapshots. The newest intact one stays in any case."""

    policies: tuple[Newest | Every | Best, ...]

    @property
    def metrics(self) -> frozenset[str]:
        """The names of those by which the best are kept."""
        return frozenset(policy.metric for policy in self.policies if isinstance(policy, Best))

    def removable(self, newest_first: Sequence[SnapshotInfo | None]) -> tuple[int, ...]:
        """The positions of the snapshots that may be deleted; None stands for a damaged one.

        A damaged one stays until it is older than the newest intact ones that stay for their age: somebody may want
        to look at it.
        """
        intact = [info for info in newest_first if info is not None]
        num_newest = max(policy.count for policy in (Newest(1), *self.policies) if isinstance(policy, Newest))
        if len(intact) < num_newest:
            return ()
        kept = {info.name for policy in (Newest(1), *self.policies) for info in policy.kept(intact)}
        begin = newest_first.index(intact[num_newest - 1]) + 1
        rest = enumerate(newest_first[begin:], begin)
        return tuple(position for position, info in rest if info is None or info.name not in kept)


def parse_retention(keep: int | str) -> Retention:
    """The policies that ``--snapshot-keep`` names; a number alone is that of the newest.

    >>> parse_retention("2,best:3:val_loss").policies
    (Newest(count=2), Best(count=3, metric='val_loss', is_lower_better=True))

    Raises:
        ValueError: it names something else.
    """
    fault = RETENTION.fault("keep", str(keep))
    if fault is not None:
        raise ValueError(f"{fault} [argument]")
    return Retention(tuple(map(_policy, str(keep).split(","))))


def _policy(text: str) -> Newest | Every | Best:
    match text.split(":"):
        case ["best", count, metric, *mode]:
            is_lower_better = mode == ["min"] if mode else re.fullmatch(LOWER_IS_BETTER, metric) is not None
            return Best(int(count), metric, is_lower_better)
        case ["every", steps]:
            return Every(int(steps))
        case [*_, count]:
            return Newest(int(count))
    raise AssertionError(text)


def _epoch(info: SnapshotInfo) -> tuple[int, object]:
    """Of which epoch its metrics are; with none, as in a training loop of one's own, each is by itself."""
    epoch = info.notes.get(METRICS_EPOCH)
    return info.fit_call, epoch if isinstance(epoch, int) else info.name
