"""Callbacks, summaries, files of weights and evaluators work on a model in stages as on a whole one."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("parity")]

_HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "case",
    [
        "early_stopping",
        pytest.param("all_others", marks=pytest.mark.proof),
        pytest.param("files_of_weights", marks=pytest.mark.proof),
    ],
)
def test_callbacks_and_files_as_in_plain_keras(worlds: Worlds, tmp_path: Path, case: str) -> None:
    worlds.of(2, in_stages=True).run(_HERE / "callback_cases.py", case, tmp_path)


@pytest.mark.parametrize("case", ["snapshots_of_stages", "whole_model"])
def test_an_evaluator_has_the_whole_model(worlds: Worlds, tmp_path: Path, case: str) -> None:
    worlds.not_launched.run(_HERE / "evaluated_cases.py", case, tmp_path)
