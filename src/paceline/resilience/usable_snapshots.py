"""Which snapshot a job goes on from: the newest intact one, or one in which a `fit` had ended.

For the chief, who logs why others are not taken.
"""

import logging

from paceline.store.manifest import SnapshotInfo
from paceline.store.snapshots import SnapshotStore

_LOGGER = logging.getLogger("paceline")

ENDS_FIT = "ends_fit"
"""In the notes of a snapshot: whether its `fit` had come to its end."""
_ENDS_OF_FITS_KEPT = 16


def keeps_end_of(fit_call: int, newest_fit_call: int) -> bool:
    """Whether the snapshot in which a `fit` had ended stays, given the numbers of that call and of the newest one."""
    return newest_fit_call - fit_call <= _ENDS_OF_FITS_KEPT


def is_needed(info: SnapshotInfo, newest: SnapshotInfo, found: SnapshotInfo | None) -> bool:
    """Whether a snapshot stays however old it is.

    A rerun passes through the ends of the last fits. While one of these is trained again, that which a later `fit` goes
    on from stays.

    Args:
        info: Which.
        newest: The one that was written last.
        found: That from which this process goes on, if there is any.
    """
    if found is not None and info.name == found.name and newest.fit_call < info.fit_call:
        return True
    return bool(info.notes.get(ENDS_FIT)) and keeps_end_of(info.fit_call, newest.fit_call)


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


def usable_of_fit(store: SnapshotStore, fit_call: int, intact: SnapshotInfo | None, *, ends_fit: bool) -> str:
    """The name of the newest intact snapshot of a `fit`; empty: there is none.

    Args:
        store: Where to look.
        fit_call: The number of that `fit` in the script, from 0.
        intact: One that is known to be.
        ends_fit: Whether that in which the `fit` had ended is looked for, or one from before.
    """
    for entry in store.entries():
        if not isinstance(entry, SnapshotInfo) or entry.fit_call != fit_call:
            continue
        if bool(entry.notes.get(ENDS_FIT)) != ends_fit:
            continue
        faults = () if intact is not None and entry.name == intact.name else store.verify(entry)
        if not faults:
            return entry.name
        _LOGGER.warning("snapshot %s is not used: %s [snapshot-damaged]", entry.path, faults[0])
    return ""
