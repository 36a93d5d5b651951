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

        print(f"rank {paceline.rank()} of {name}, {module_of_the_caller.NAME}")
        return paceline.rank() * factor + offset, paceline.world_size(), name

    assert paceline.launch(place, 2, args=(5,), kwargs={"name": "job"}) == [(10, 2, "job"), (15, 2, "job")]
    output = capsys.readouterr().out
    assert "[0] rank 0 of job, found" in output
    assert "[1] rank 1 of job, found" in output


def test_a_lambda_can_talk_to_the_other_ranks() -> None:
    from paceline.comm.world import current_world

    [first, second] = paceline.launch(
        lambda: current_world().group.all_reduce([np.array([paceline.rank() + 1.0])])[0].tolist(), workers=2
    )
    assert first == second == [3.0]


def test_a_function_that_fails_raises_here_after_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """Callers had its text on the screen only, and could not tell one failure from another."""

    class NothingHere(LookupError):
        def __init__(self, place: str) -> None:
            super().__init__(f"nothing in {place}")
            self.place = place

        def __reduce__(self) -> tuple[object, ...]:
            return type(self), (self.place,)

    def fail() -> None:
        if paceline.rank() == 1:
            raise NothingHere("the box")
        raise_later()

    def raise_later() -> None:
        import time

        time.sleep(600)

    with pytest.raises(RuntimeError, match=r"exit code 1.*\[launch-failed\]") as caught:
        paceline.launch(fail, workers=2)
    assert "NothingHere: nothing in the box" in capsys.readouterr().out
    cause = caught.value.__cause__
    assert isinstance(cause, LookupError)
    assert (type(cause).__name__, cause.place) == ("NothingHere", "the box")  # type: ignore[attr-defined]
    [note] = cause.__notes__
    assert note.startswith("on rank 1:\nTraceback (most recent call last):")
    assert "in fail" in note
    assert "bootstrap" not in note


def test_an_exception_that_cannot_travel_comes_as_its_text() -> None:
    def fail() -> None:
        error = ValueError("wrong")
        error.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(RuntimeError) as caught:
        paceline.launch(fail, workers=1)
    assert str(caught.value.__cause__) == "ValueError: wrong"

    def on_a_worker(text: str) -> Exception:
        """What only a worker can read: a class of a module that the caller has not."""
        __import__("os").environ["PACELINE_RANK"]
        return ValueError(text)

    class Readable(ValueError):
        def __reduce__(self) -> tuple[object, ...]:
            return on_a_worker, self.args

    def fail_elsewhere() -> None:
        raise Readable("there only")

    with pytest.raises(RuntimeError) as caught:
        paceline.launch(fail_elsewhere, workers=1)
    assert str(caught.value.__cause__).endswith("there only")
    with pytest.raises(RuntimeError) as caught:
        paceline.launch(lambda: __import__("os").kill(__import__("os").getpid(), 9), workers=1)
    assert caught.value.__cause__ is None
