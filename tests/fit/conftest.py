"""The results of parity jobs, which the tests of data parallelism and of pipelines compare with the same reference."""

import pytest
from parity_runs import Runs

from worlds import Worlds


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, worlds: Worlds) -> Runs:
    return Runs(tmp_path_factory.mktemp("parity"), worlds)
