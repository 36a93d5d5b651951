"""Under `paceline run`, whatever strategy a script names, and a script that names none, spans the whole world."""

import ast
import statistics
from pathlib import Path

import numpy as np
import pytest

from programs import Ended, run_workers

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("every_spelling")]

SCRIPT = Path(__file__).with_name("every_spelling.py")
RELATIVE = 1e-9
MAX_SECONDS_AFTER_LAST_STEP = 2.0


def _assigned(name: str) -> ast.expr:
    for node in ast.parse(SCRIPT.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.value
    raise LookupError(name)


SPELLINGS = [ast.literal_eval(key) for key in _assigned("SPELLINGS").keys]
TRAINED = ["no_strategy", *ast.literal_eval(_assigned("TRAINED"))]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    directory = tmp_path_factory.mktemp("every_spelling")
    return directory, run_workers(2, SCRIPT, directory, folder=directory)


def test_the_script_comes_to_its_end(job) -> None:
    assert job[1].code == 0, job[1].output


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_spans_the_world(job, saved, name: str) -> None:
    for rank in range(2):
        values = saved(job[0], name, rank)
        assert (values["num_replicas"], values["replica_id"]) == (2, rank)


@pytest.mark.parametrize("name", TRAINED)
def test_it_trains_as_one_worker_does(job, saved, one_worker, name: str) -> None:
    reference = one_worker("one_worker")
    for rank in range(2):
        values = saved(job[0], name, rank)
        for key in ("weights", "loss", "accuracy"):
            np.testing.assert_allclose(values[key], reference[key], rtol=RELATIVE, err_msg=f"{key}, rank {rank}")


def test_a_script_without_a_strategy_is_told_once_that_it_has_one(job) -> None:
    told = [line for line in job[1].output.splitlines() if "the script names no strategy" in line]
    assert len(told) == 1
    assert "all 2 workers" in told[0]


def test_the_launchers_identity_wins_over_the_scripts_tf_config_and_says_so_once(job) -> None:
    told = [line for line in job[1].output.splitlines() if "sets its own TF_CONFIG" in line]
    assert len(told) == 1
    assert "is ignored" in told[0]


def test_random_numbers_agree_before_the_script_seeds_anything(job, saved) -> None:
    chief, other = (saved(job[0], "drawn", rank) for rank in range(2))
    for name, value in chief.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


def test_data_made_before_the_strategy_serve_it(job, saved) -> None:
    weights = [saved(job[0], "data_made_early", rank)["weights"] for rank in range(2)]
    np.testing.assert_array_equal(weights[0], weights[1])


@pytest.mark.parametrize("name", ["initial_weights", "initial_weights_without_strategy"])
def test_initial_weights_are_the_chiefs_however_ranks_are_seeded(job, saved, one_worker, name: str) -> None:
    for rank in range(2):
        weights = saved(job[0], name, rank)["weights"]
        np.testing.assert_array_equal(weights, one_worker("initial_weights")["weights"])


def test_a_model_made_outside_the_scope_is_told_to_train_alone(job) -> None:
    told = [line for line in job[1].output.splitlines() if "built outside strategy.scope()" in line]
    assert len(told) == 1
    assert told[0].startswith("[0] ")


def test_fit_returns_right_after_its_last_step(job, saved) -> None:
    """With pinned ranks, tf.data's autotuner once held it for three to five seconds."""
    seconds = [float(saved(job[0], name, rank)["seconds_after_last_step"]) for name in TRAINED for rank in range(2)]
    assert statistics.median(seconds) <= MAX_SECONDS_AFTER_LAST_STEP, seconds


def test_an_optimizer_step_of_one_rank_alone_is_refused_with_the_fix(job, saved) -> None:
    for rank in range(2):
        told = saved(job[0], "lonely_step", rank)["told"]
        assert len(told) == 2, "eagerly, and in a tf.function"
        for text in told:
            assert "strategy.run(step" in text
            assert "model.fit" in text


@pytest.mark.proof
def test_without_the_drop_in_a_script_that_names_no_strategy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("from training import train\ntrain()\nprint('came to its end')\n")
    variables = {"PYTHONPATH": str(SCRIPT.parent)}
    ended = run_workers(2, "--no-drop-in", "plain.py", folder=tmp_path, variables=variables)
    assert ended.code == 1
    assert "came to its end" not in ended.output
    assert "Leave --no-drop-in out" in ended.output
