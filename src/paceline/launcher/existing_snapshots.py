"""What the launcher reads from existing snapshots: the seed of a job that resumes, and where a new run would resume."""

import asyncio
import os
from collections.abc import Iterable, Sequence

from paceline.cluster.job_options import MAX_SEED
from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.crew import Crew
from paceline.rendezvous.agent_messages import HostFacts

_RANDOM_BYTES = 4
_SEARCH_SECONDS = 10.0
_PREEMPTED_SEARCH_SECONDS = 2.0
"""A preempted job must end soon; reading a large snapshot may take longer."""


def seed_of(job: JobDescription, facts: Iterable[HostFacts]) -> int:
    """The seed of a job: the user's; else that of the snapshots, from the first host that can read them; else random.

    Reads from the store, which may be slow.

    Args:
        job: The job.
        facts: The facts of its hosts.

    Raises:
        ConfigurationError: see `kept_seed`.
    """
    if job.options.seed is not None:
        return job.options.seed
    seeds = [one.kept_seed for one in facts]
    if job.options.snapshot_dir is not None and not job.hosts:  # with --hosts this machine may see no snapshots
        seeds.insert(0, kept_seed(job.options.snapshot_dir))
    drawn = int.from_bytes(os.urandom(_RANDOM_BYTES))
    return next((seed for seed in seeds if seed is not None and 0 <= seed <= MAX_SEED), drawn)


def kept_seed(directory: str) -> int | None:
    """The seed in the newest snapshot of `directory`; None: no snapshot can be read.

    Raises:
        ConfigurationError: a package that this kind of object store needs is not installed.
    """
    from paceline.store.snapshots import SnapshotStore  # only jobs with snapshots need it

    try:
        entries = SnapshotStore(directory).entries()
    except ConfigurationError:
        raise
    except Exception:  # each object store has errors of its own
        return None  # the workers report what is wrong
    for entry in entries:
        seed = getattr(entry, "notes", {}).get("seed")
        if isinstance(seed, int) and 0 <= seed <= MAX_SEED:
            return seed
    return None


def newest_snapshot(directory: str) -> str:
    """The name of the newest snapshot in `directory` of which every byte is intact; empty: there is none.

    Reads the whole snapshot.
    """
    from paceline.store.snapshots import SnapshotStore  # only jobs with snapshots need it

    try:
        found = SnapshotStore(directory).newest_intact().found
    except Exception:  # each object store has errors of its own, and the job has ended anyway
        return ""
    return found.name if found is not None else ""


async def resume_lines(job: JobDescription, crews: Sequence[Crew], *, is_preempted: bool) -> list[str]:
    """The line that names the snapshot from which a new run of a job that did not succeed would continue, if any.

    A host of the job looks: with ``--hosts``, this machine may not see the snapshots.

    Args:
        job: The job.
        crews: Its hosts.
        is_preempted: Whether workers were told to stop and take snapshots, perhaps in a directory of the script's own.
    """
    if job.options.snapshot_dir is None:
        return ["paceline: run the same command again to continue from the newest snapshot"] if is_preempted else []
    seconds = _PREEMPTED_SEARCH_SECONDS if is_preempted else _SEARCH_SECONDS
    try:
        name = await asyncio.wait_for(_first_answer(crews, job.options.snapshot_dir), seconds)
    except TimeoutError:
        return ["paceline: run the same command again to continue from the newest snapshot that can be read"]
    if not name:
        return []
    return [f"paceline: run the same command again to continue from snapshot {name} in {job.options.snapshot_dir}"]


async def _first_answer(crews: Sequence[Crew], directory: str) -> str:
    for crew in crews:
        try:
            return await crew.newest_snapshot(directory)
        except ConnectionError:
            continue
    return ""
