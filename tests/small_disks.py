"""Disks that are full soon: a mounted one, for processes; a limit of this process, for what it writes itself."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LIMIT_SECONDS = 120


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Path]:
    """Mounts a disk of that size at `folder`; skips the test where this user may not mount."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "paceline-test", str(folder)]
    if subprocess.run(mount, capture_output=True, timeout=LIMIT_SECONDS).returncode:
        pytest.skip("a small disk is a tmpfs, which only root may mount; CI runs as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=LIMIT_SECONDS)


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """What a full disk does to who writes; other limits of the process stay."""
    before, on_signal = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, on_signal)
