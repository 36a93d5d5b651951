"""What two stages refuse is told on all ranks."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600), pytest.mark.xdist_group("parity")]

_SCRIPT = Path(__file__).with_name("refused_cases.py")


def test_a_model_outside_of_the_scope_is_not_trained(worlds: Worlds) -> None:
    """Beside a pipeline, a `fit` under no strategy passed: each worker trained the whole model without a word."""
    for told in worlds.of(2, in_stages=True).run(_SCRIPT, "made_outside_of_the_scope").same:
        assert told.startswith("ConfigurationError: This model was made outside of the PipelineStrategy's scope")
        assert "each of the 2 workers would train the whole model" in told
        assert told.endswith("[outside-scope]")
