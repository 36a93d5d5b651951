"""Which snapshot a job goes on from: the newest intact one, or one in which a `fit` had ended.

For the chief, who logs why others are not taken.
"""

import logging

from paceline.store.manifest import SnapshotInfo
from paceline.store.snapshots import SnapshotStore

_LOGGER = logging.getLogger("paceline")

ENDS_FIT = "ends_fit"
"""In the notes of a snapshot: whether its `fit` had come to its end."""


def newest_usable(store: SnapshotStore, generation: int) -> str:
    """The name of the newest snapshot in `store` that is intact; empty: there is none.

    Raises:
        OSError: some could not be read.
    """
    search = store.newest_intact()
    for line in search.skipped:
        _LOGGER.warning("%s", line)
    if search.found is None and (search.skipped or generation > 1):
        why = "all existing snapshots are damaged" if search.skipped else "none has been written yet"
        _LOGGER.warning(
            "%s has no snapshot to resume from (%s): training starts from the beginning", store.location, why
        )
    return "" if search.found is None else search.found.name


def usable_end(store: SnapshotStore, fit_call: int, intact: SnapshotInfo | None) -> str:
    """The name of the snapshot in which a `fit` had ended, if it is there and intact; else empty.

    Args:
        store: Where to look.
        fit_call: The number of that `fit` in the script, from 0.
        intact: One that is known to be.
    """
    for entry in store.entries():
        if not (isinstance(entry, SnapshotInfo) and entry.fit_call == fit_call and entry.notes.get(ENDS_FIT)):
            continue
        faults = () if intact is not None and entry.name == intact.name else store.verify(entry)
        if not faults:
            return entry.name
        _LOGGER.warning("snapshot %s is not used: %s [snapshot-damaged]", entry.path, faults[0])
    return ""
