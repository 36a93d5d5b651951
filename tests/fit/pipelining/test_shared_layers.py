"""Models may have layers in common, and layers weights, wherever they are cut."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("parity")]

_CASES = Path(__file__).with_name("shared_layer_cases.py")


def test_models_that_share_layers_and_are_cut_differently(worlds: Worlds, tmp_path: Path) -> None:
    """A model took the values of layers for its own stages only, also of layers that had them elsewhere already."""
    worlds.of(2, in_stages=True).run(_CASES, "two_models", tmp_path)
