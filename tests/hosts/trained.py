"""What `trains_on_hosts.py` has saved on each rank, beside what one process saves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SCRIPT = Path(__file__).with_name("trains_on_hosts.py")
RELATIVE = 1e-9


def read_rank(folder: Path, rank: int) -> dict[str, Any]:
    with np.load(folder / f"rank{rank}.npz") as saved:
        return dict(saved)


def assert_trained_alike(folder: Path, num_ranks: int, alone: Mapping[str, Any]) -> dict[str, Any]:
    """All ranks have the same bits, and the numbers of one process; returns what rank 0 has saved."""
    chief, *others = (read_rank(folder, rank) for rank in range(num_ranks))
    for other in others:
        np.testing.assert_array_equal(other["weights"], chief["weights"])
    np.testing.assert_allclose(chief["weights"], alone["weights"], rtol=RELATIVE)
    np.testing.assert_allclose(chief["loss"], alone["loss"], rtol=RELATIVE)
    return chief
