"""What the tests of this folder share: the reference run, and reading what scripts have saved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worlds import Worlds

SCRIPTS = Path(__file__).parent
Saved = Callable[[Path, str, int], dict[str, Any]]


@pytest.fixture(scope="session")
def saved() -> Saved:
    """Reads ``(directory, name, rank)``."""

    def read(directory: Path, name: str, rank: int = 0) -> dict[str, Any]:
        with np.load(directory / f"{name}.rank{rank}.npz") as archive:
            return dict(archive)

    return read


@pytest.fixture(scope="session")
def one_worker(
    worlds: Worlds, tmp_path_factory: pytest.TempPathFactory, saved: Saved
) -> Callable[[str], dict[str, Any]]:
    """What a plain process without Paceline has saved under a name."""
    directory = tmp_path_factory.mktemp("one_worker")
    worlds.plain.run_script(SCRIPTS / "one_worker.py", directory, folder=directory)
    return lambda name: saved(directory, name, 0)
