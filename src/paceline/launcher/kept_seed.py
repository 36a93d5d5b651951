"""The seed of the job whose snapshots are there already: a run that goes on needs it before its script runs."""

from paceline.launcher.job import MAX_SEED


def kept_seed(directory: str) -> int | None:
    """The seed in the newest snapshot of `directory`; None: there is none, or none that can be read."""
    from paceline.store.snapshots import SnapshotStore  # only jobs with snapshots need it

    try:
        entries = SnapshotStore(directory).entries()
    except OSError:
        return None  # the workers say what is wrong with it
    for entry in entries:
        seed = getattr(entry, "notes", {}).get("seed")
        if isinstance(seed, int) and 0 <= seed <= MAX_SEED:
            return seed
    return None
