"""Which engine trains a model, where that is not plain."""

from pathlib import Path

import pytest

from programs import Ended, run_workers

pytestmark = pytest.mark.processes

JOB = Path(__file__).with_name("engines_job.py")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_workers(2, JOB, folder=tmp_path_factory.mktemp("engines"))


def test_a_model_made_outside_of_the_scope_that_it_is_used_in_trains_with_it(ended: Ended) -> None:
    [first], [second] = (ended.lines(f"[{rank}] made_outside ") for rank in (0, 1))
    assert first.removeprefix("[0] ") == second.removeprefix("[1] ")
    assert "(8, 1) " in first
    assert first.endswith(" 4")
    assert "2 replicas; global batch 4" in ended.output
    assert "never synchronized" not in ended.output


def test_a_model_that_a_traced_step_asks_computes_all_rows(ended: Ended) -> None:
    assert ended.lines("[0] asking ") == ["[0] asking [(4, 1)]"]
    assert ended.lines("[1] asking ") == ["[1] asking [(4, 1)]"]


def test_a_list_of_callbacks_needs_no_model(ended: Ended) -> None:
    assert ended.lines("[0] listed ") == ["[0] listed begin, batch 3"]


def test_a_wrong_argument_of_compile_is_kerass_own_error(ended: Ended) -> None:
    [line] = ended.lines("[0] wrong ")
    assert "compile() got an unexpected keyword argument 'wrong'" in line
