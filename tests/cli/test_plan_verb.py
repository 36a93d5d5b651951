"""`paceline plan` as users type it."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from paceline.cli import plan_verb
from paceline.cli.verbs import app
from paceline.plan.profile import Layer, Profile
from paceline.plan.schedules import Schedule

LIMIT_SECONDS = 240

MODEL = """
print("the file is read")

def build_model(width=32):
    import keras

    layers = [keras.layers.Dense(width, activation="relu", name=f"dense{number}") for number in range(5)]
    model = keras.Sequential([keras.Input((width,)), *layers, keras.layers.Dense(3, name="head")])
    model.compile("adam", "mse")
    return model

def of_width(width):
    return build_model(width)

if __name__ == "__main__":
    raise SystemExit("a plan trains nothing")
"""


def plan(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    return Path("model.py")


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "paceline", "plan", *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)


@pytest.mark.processes
def test_a_plan(model: Path) -> None:
    words = ("--stages", "2", "--micro-batches", "4", "--batch", "32", "--memory-limit", "2GB", "--replicas", "2")
    finished = typed(f"{model}:build_model", *words, "--json", "--plot", "plan.svg")
    assert finished.returncode == 0, finished.stderr
    assert "the file is read" in finished.stderr
    told = json.loads(finished.stdout)
    assert (told["model"], told["batch"]) == ("model.py:build_model", 32)
    assert (told["stages"], told["micro_batches"], told["replicas"]) == (2, 4, 2)
    assert told["memory_limit_bytes"] == 2e9
    assert [layer["name"] for layer in told["layers"]] == [*(f"dense{number}" for number in range(5)), "head"]
    first = told["layers"][0]
    assert first["parameter_bytes"] == 4 * (32 * 32 + 32)
    assert first["slot_bytes"] == 2 * first["parameter_bytes"]
    assert first["output_bytes"] == 4 * 8 * 32  # a micro-batch of 8 rows
    assert told["layers"][1]["reads"] == ["dense0"]
    schedules = {one["name"]: one for one in told["schedules"]}
    assert schedules.keys() >= {"gpipe", "1f1b", "zb_h1", "pipedream"}
    one = schedules["1f1b"]
    assert sum(one["balance"]) == 6
    assert [name for stage in one["stages"] for name in stage["layers"]] == [layer["name"] for layer in told["layers"]]
    assert one["split_after"] == [one["stages"][0]["layers"][-1]]
    assert one["step_seconds"] >= max(stage["busy_seconds"] for stage in one["stages"]) > 0
    assert schedules[told["best"]]["is_synchronous"]
    picture = Path("plan.svg").read_text()
    assert picture.startswith("<svg")
    assert ">stage 1<" in picture
    assert f">{told['best']}: a step " in picture


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such", "model.py has no 'no_such'; it has the functions build_model, of_width"),
        ("of_width", "of_width in model.py needs the arguments width"),
    ],
)
def test_a_name_that_makes_no_model(model: Path, name: str, words: str) -> None:
    finished = typed(f"{model}:{name}", "--stages", "2", "--micro-batches", "4", "--batch", "32")
    assert finished.returncode == 78
    assert words in finished.stderr
    assert "[plan-model]" in finished.stderr
    assert finished.stdout == ""


NUMBERS = ("--stages", "2", "--micro-batches", "4", "--batch", "32")


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (("model.py", *NUMBERS), 2, "received 'model.py'; expected a Python file and a name in it"),
        (("gone.py:build", *NUMBERS), 2, "received 'gone.py:build'"),
        (("model.py:build_model", *NUMBERS, "--schedule", "2f2b"), 2, "received the schedule '2f2b'; expected one of"),
        (("model.py:build_model", *NUMBERS, "--memory-limit", "much"), 2, "--memory-limit: received 'much'"),
        (("model.py:build_model", *NUMBERS, "--plot", "plan.png"), 2, "a name that ends in .svg or .html"),
        (("model.py:build_model", *NUMBERS[:-1], "3"), 78, "a batch of 3 rows cannot be cut into 4 micro-batches"),
    ],
)
def test_what_is_refused_before_anything_is_measured(
    model: Path, words: tuple[str, ...], exit_code: int, message: str
) -> None:
    del model
    result = plan(*words)
    assert result.exit_code == exit_code, result.output
    assert message in result.output


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_picture_of_the_schedules_that_are_named(model: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    layers = tuple(Layer(f"{{layer{at}}}", 1, 1, 1, (at - 1,) if at else ()) for at in range(4))
    monkeypatch.setattr(plan_verb, "_measured", lambda *_: Profile(layers))
    named = ("--schedule", "gpipe", "--schedule", "1f1b")
    result = plan(f"{model}:build_model", *NUMBERS, *named, "--plot", f"plan.{suffix}")
    assert result.exit_code == 0, result.output
    picture = Path(f"plan.{suffix}").read_text()
    assert [f">{name}: a step " in picture for name in ("gpipe", "1f1b", "zb_h1")] == [True, True, False]
    assert ("{layer0}" in picture) == (suffix == "html"), "the tables are in the page only"


def test_a_picture_needs_matplotlib(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before anything is measured."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = plan(f"{model}:build_model", *NUMBERS, "--plot", "plan.svg")
    assert result.exit_code == 2
    message = "--plot: matplotlib is not installed. Fix: pip install 'paceline[observe]' [observe]"
    assert result.stderr == f"paceline: {message}\n"


def test_a_schedule_that_takes_long_is_told_while_it_is_planned(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, echo = threading.Event(), typer.echo

    class SlowProfile(Profile):
        def under(self, schedule: Schedule | None) -> Profile:
            """Before the split and all that follows; ends only after the line."""
            assert told.wait(LIMIT_SECONDS)
            return super().under(schedule)

    def heard_echo(message: str = "", *, err: bool = False) -> None:
        echo(message, err=err)
        if err:
            told.set()

    layers = tuple(Layer(f"layer{at}", 1, 1, 1, (at - 1,) if at else ()) for at in range(4))
    monkeypatch.setattr(plan_verb, "_measured", lambda *_: SlowProfile(layers))
    monkeypatch.setattr(plan_verb, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(typer, "echo", heard_echo)
    result = plan(f"{model}:build_model", *NUMBERS, "--schedule", "1f1b")
    assert result.exit_code == 0, result.output
    assert "paceline: plans 1f1b (1 of 1 schedules); many stages and layers take long" in result.stderr
