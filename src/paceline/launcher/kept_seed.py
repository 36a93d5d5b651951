"""The seed of the job whose snapshots are there already: a run that goes on needs it before its script runs."""

import os
from collections.abc import Iterable

from paceline.errors import ConfigurationError
from paceline.launcher.job import MAX_SEED, JobDescription
from paceline.rendezvous.generation_order import HostFacts

_RANDOM_BYTES = 4


def seed_of(job: JobDescription, facts: Iterable[HostFacts]) -> int:
    """The user's seed; else that of the snapshots, as the first host that sees them has it; else any.

    May take as long as the store does.

    Args:
        job: The job.
        facts: What its hosts have said.

    Raises:
        ConfigurationError: see `kept_seed`.
    """
    if job.seed is not None:
        return job.seed
    seeds = [one.kept_seed for one in facts]
    if job.snapshots is not None and not job.hosts:  # else this machine may be none of them, and see no snapshots
        seeds.insert(0, kept_seed(job.snapshots.directory))
    drawn = int.from_bytes(os.urandom(_RANDOM_BYTES))
    return next((seed for seed in seeds if seed is not None and 0 <= seed <= MAX_SEED), drawn)


def kept_seed(directory: str) -> int | None:
    """The seed in the newest snapshot of `directory`; None: there is none, or none that can be read.

    Raises:
        ConfigurationError: a package that this kind of object store needs is not installed.
    """
    from paceline.store.snapshots import SnapshotStore  # only jobs with snapshots need it

    try:
        entries = SnapshotStore(directory).entries()
    except ConfigurationError:
        raise
    except Exception:  # each object store has errors of its own
        return None  # the workers say what is wrong with it
    for entry in entries:
        seed = getattr(entry, "notes", {}).get("seed")
        if isinstance(seed, int) and 0 <= seed <= MAX_SEED:
            return seed
    return None
