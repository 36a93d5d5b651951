"""Weights from a directory of snapshots, as `fit` takes them."""

from collections.abc import Sequence
from typing import Any

from paceline.evaluation.weight_source import Moment, NotReadableError, Weights, WeightSource
from paceline.fit.snapshots.model_state import SEEN_BY_EVALUATIONS, model_parts
from paceline.pipeline.stage_parts import PIECES, layers_part
from paceline.resilience.parts import Layout
from paceline.resilience.restored_parts import SavedParts
from paceline.resilience.usable_snapshots import ENDS_FIT
from paceline.store.folder import DamagedSnapshotError
from paceline.store.manifest import SnapshotInfo
from paceline.store.retention import METRICS_EPOCH
from paceline.store.snapshots import SnapshotStore

_ALONE = Layout(0, ((0,),))


class SnapshotSource(WeightSource):
    """The snapshots in a directory.

    Args:
        directory: A path, or a URL that the store knows.
        fit_call: Only those of this call of `fit` in the script, from 0; None: of all.
    """

    def __init__(self, directory: str, fit_call: int | None = None) -> None:
        self._store = SnapshotStore(directory, keep=None)
        self._fit_call = fit_call
        self._infos: dict[str, SnapshotInfo] = {}
        self.later_fit_has_begun = False
        """Whether there were snapshots of a later call of `fit` when `found` was last asked."""

    def found(self) -> Sequence[Weights]:
        """See `WeightSource.found`. Those of earlier calls of `fit` are older."""
        infos = [entry for entry in self._store.entries() if isinstance(entry, SnapshotInfo)]
        is_released = self._store.was_released()
        self.later_fit_has_begun = any(one.fit_call > (self._fit_call or 0) for one in infos)
        chosen = [one for one in infos if self._fit_call in (None, one.fit_call)]
        self._infos = {one.name: one for one in chosen}
        return [_weights(one, is_released) for one in sorted(chosen, key=_order, reverse=True)]

    def load(self, weights: Weights, model: Any) -> Moment:
        """See `WeightSource.load`."""
        info = self._infos[weights.name]
        try:
            saved = SavedParts(self._store.open(info), _ALONE)
            if saved.has(PIECES):
                saved.restore([layers_part(model)])
            else:
                seen = [part for part in model_parts(model, is_chief=True) if part.name in SEEN_BY_EVALUATIONS]
                saved.restore(seen)
        except (OSError, DamagedSnapshotError) as fault:
            raise NotReadableError(str(fault)) from fault
        return Moment(info.step, info.epoch)


def _order(info: SnapshotInfo) -> tuple[float, ...]:
    # The end of a `fit` is a snapshot of the same step as the one after its last step, and is newer.
    return info.fit_call, bool(info.notes.get(ENDS_FIT)), info.step, info.created_at_seconds


def _num_epochs(info: SnapshotInfo) -> int:
    """How many epochs had ended, in the `fit` that goes on."""
    last = info.notes.get(METRICS_EPOCH)
    return last + 1 if isinstance(last, int) else 0


def _weights(info: SnapshotInfo, is_released: bool) -> Weights:
    is_end = bool(info.notes.get(ENDS_FIT))
    return Weights(
        name=info.name,
        stamp=f"{info.created_at_seconds:.6f}",
        order=_order(info),
        number=_num_epochs(info),
        is_final=is_end and is_released,
    )
