"""What a model leaves behind when it is gone: nothing that grows with the number of models."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("memory_jobs.py")


def test_models_leave_no_graphs_behind(worlds: Worlds) -> None:
    """TensorFlow keeps what has a custom gradient, and a finalizer kept what an iterator's dataset knew."""
    for told in worlds.of(2).run(SCRIPT, "fits").told:
        assert told["graphs"][1:] == told["graphs"][:1] * 2


@pytest.mark.proof
def test_a_custom_gradient_lives_as_long_as_its_function(worlds: Worlds) -> None:
    [one] = worlds.plain.run(SCRIPT, "gradient").told
    for told in worlds.of(2).run(SCRIPT, "gradient").told:
        assert told["gradient"] == pytest.approx(one["gradient"], rel=1e-6)
