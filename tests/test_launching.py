"""`paceline.launch`: a function in several processes, its results here."""

from pathlib import Path

import numpy as np
import pytest

import paceline

pytestmark = [pytest.mark.processes]


def test_results_come_back_in_rank_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = 10  # a closure travels with the function
    (tmp_path / "module_of_the_caller.py").write_text("NAME = 'found'\n")
    monkeypatch.syspath_prepend(tmp_path)  # as the folder of a script is, wherever the script was started

    def place(factor: int, *, name: str) -> tuple[int, int, str]:
        import module_of_the_caller

        print(f"this is {name}, {module_of_the_caller.NAME}")
        return paceline.rank() * factor + offset, paceline.world_size(), name

    assert paceline.launch(place, 2, args=(5,), kwargs={"name": "job"}) == [(10, 2, "job"), (15, 2, "job")]
    output = capsys.readouterr().out
    assert "[0] this is job, found" in output
    assert "[1] this is job, found" in output


def test_a_lambda_can_talk_to_the_other_ranks() -> None:
    from paceline.comm.world import current_world

    [first, second] = paceline.launch(
        lambda: current_world().communicator.all_reduce([np.array([paceline.rank() + 1.0])])[0].tolist(), workers=2
    )
    assert first == second == [3.0]


def test_a_function_that_fails_raises_here_after_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        if paceline.rank() == 1:
            raise LookupError("nothing here")

    with pytest.raises(RuntimeError, match="exit code 1"):
        paceline.launch(fail, workers=2)
    assert "LookupError: nothing here" in capsys.readouterr().out
