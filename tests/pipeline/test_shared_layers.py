"""Models may have layers in common, and layers weights, wherever they are cut."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("parity")]

_CASES = Path(__file__).with_name("shared_layer_cases.py")

_IN_EVERY_CHECK = {
    ("tied_head", "1f1b"),
}
_ALL = [
    pytest.param(model, schedule, marks=() if (model, schedule) in _IN_EVERY_CHECK else pytest.mark.proof)
    for model in ("tied_head", "reversed", "argument", "looked_up_twice", "dense_twice")
    for schedule in ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v")
]


@pytest.mark.proof
def test_models_that_share_layers_and_are_cut_differently(worlds: Worlds, tmp_path: Path) -> None:
    """A model took the values of layers for its own stages only, also of layers that had them elsewhere already."""
    worlds.of(2, in_stages=True).run(_CASES, "two_models", tmp_path)


@pytest.mark.parametrize(("model", "schedule"), _ALL)
def test_weights_of_several_stages(worlds: Worlds, tmp_path: Path, model: str, schedule: str) -> None:
    """Layers that share weights had to be on one stage: no language model with tied weights could be divided."""
    worlds.of(2, in_stages=True).run(_CASES, model, tmp_path, schedule)


@pytest.mark.parametrize(("model", "schedule"), [pytest.param(*one.values, marks=pytest.mark.proof) for one in _ALL])
def test_weights_of_several_stages_with_replicas(worlds: Worlds, tmp_path: Path, model: str, schedule: str) -> None:
    worlds.of(4, in_stages=True).run(_CASES, model, tmp_path, schedule)


@pytest.mark.proof
@pytest.mark.parametrize("workers", [2, 4])
def test_predict_keeps_what_layers_assign(worlds: Worlds, tmp_path: Path, workers: int) -> None:
    """The states that a batch leaves were assigned behind batches that are trained or evaluated only."""
    worlds.of(workers, in_stages=True).run(_CASES, "what_layers_assign_in_predict", tmp_path)
