"""Checks that the chief can write to the directory and that all ranks see it: a host may lack the mount.

the chief   write a probe ─► token ─► all ranks look for it ─► all know who does not see it
            no room for it ──────────► all ranks look for the newest snapshot instead
"""

import contextlib
import errno
import logging
import secrets
import time

import numpy as np

from paceline.comm.group import Group
from paceline.errors import ConfigurationError
from paceline.store.folder import DamagedSnapshotError
from paceline.store.snapshots import SnapshotStore

_LOGGER = logging.getLogger("paceline")

_PROBE_SECONDS = 10.0
_POLL_SECONDS = 0.01
_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_that_all_see_it(store: SnapshotStore, group: Group, newest: str) -> None:
    """Looks for what the chief writes on each rank. Collective.

    Args:
        store: The directory, as this rank has it.
        group: Of all ranks.
        newest: The name of a snapshot that the chief sees, to look for where it cannot write; may be empty.

    Raises:
        ConfigurationError: some rank does not see it, or nothing was ever written there and cannot be; on all ranks.
    """
    token = secrets.token_hex(8)
    fault, refusal = _write_probe(store, token, newest) if group.rank == 0 else ("", "")
    token, fault, refusal = chiefs_texts(group, token, fault, refusal)
    if refusal:
        raise ConfigurationError(
            f"the snapshot directory {store.location} cannot be used: {refusal} [snapshot-directory]"
        )
    if group.size == 1 and not fault:
        _remove_probe(store, token)
    if group.size == 1 or (fault and not newest):
        return  # nobody else looks, or nothing is there that all could look at
    give_up_at = time.monotonic() + _PROBE_SECONDS
    while not (is_seen := _sees(store, token, newest if fault else "")) and time.monotonic() < give_up_at:
        time.sleep(_POLL_SECONDS)
    views = np.concatenate(group.all_gather(np.array([is_seen], np.int8)))
    if group.rank == 0 and not fault:
        _remove_probe(store, token)
    if not views.all():
        raise ConfigurationError(
            f"the snapshot directory {store.location} is not shared by all hosts: rank(s) "
            f"{', '.join(map(str, np.flatnonzero(views == 0)))} cannot see the file that rank 0 wrote there. "
            "Choose a directory on a file system that all hosts share, or the URL of an object store "
            "(--snapshot-dir). [snapshot-directory]"
        )


def chiefs_texts(group: Group, *texts: str) -> list[str]:
    """The chief's texts on every rank. Collective."""
    own = "\0".join(texts).encode() if group.rank == 0 else b""
    gathered = group.all_gather(np.frombuffer(own, np.uint8))
    return gathered[0].tobytes().decode().split("\0")


def _write_probe(store: SnapshotStore, token: str, newest: str) -> tuple[str, str]:
    """Why the chief cannot write it; and the same again where that is a reason not to train."""
    try:
        store.write_probe(token)
    except OSError as error:
        fault = str(error) or type(error).__name__
        _remove_probe(store, token)
        if not newest and error.errno not in _FULL:
            return fault, fault  # no snapshot has ever been written here: a wrong setting, not a disk that filled
        _LOGGER.error(
            "THE SNAPSHOT DIRECTORY %s IS NOT WRITABLE (%s). Training continues without new snapshots until it "
            "is writable.%s",
            store.location,
            fault,
            "" if newest else " Whether all hosts see the same directory could not be checked.",
        )
        return fault, ""
    return "", ""


def _remove_probe(store: SnapshotStore, token: str) -> None:
    with contextlib.suppress(OSError):  # then a small file stays that nobody asks for again
        store.remove_probe(token)


def _sees(store: SnapshotStore, token: str, snapshot: str) -> bool:
    """Whether `snapshot` is here; with none, whether the probe is."""
    if not snapshot:
        return store.sees_probe(token)
    try:
        store.find(snapshot)
    except DamagedSnapshotError:  # as one that is not there
        return False
    return True
