"""The warm worlds of the tests: each case finds a process as the first one did, and one that fails names itself."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from process_table import running, until_gone
from worlds import World, Worlds

pytestmark = pytest.mark.processes

_CASES = """
import os, sys, time
import keras, tensorflow as tf

def changes_what_it_can():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    tf.config.run_functions_eagerly(True)
    tf.distribute.MultiWorkerMirroredStrategy()
    os.environ["CHANGED"] = "1"
    os.chdir("/")
    print("changed by", os.environ["PACELINE_RANK"])

def tells_what_it_finds():
    layer = keras.layers.Dense(1)
    model = keras.Sequential([keras.Input((1,)), layer])
    return {
        "dtype": layer.dtype,
        "eager": tf.config.functions_run_eagerly(),
        "name": layer.name,
        "environment": "CHANGED" in os.environ,
        "directory": os.getcwd(),
        "replicas": model.distribute_strategy.num_replicas_in_sync,
        "strategy": type(model.distribute_strategy).__name__,
        "pid": os.getpid(),
    }

def fails_on_one_rank():
    if os.environ["PACELINE_RANK"] == "1":
        raise ArithmeticError("on one rank")
    time.sleep(600)

def hangs():
    time.sleep(600)

def run_case(name):
    return globals()[name]()
"""


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds.of(2)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "cases.py").write_text(_CASES)
    return tmp_path / "cases.py"


@pytest.fixture
def own_worlds() -> Iterator[Worlds]:
    with contextlib.closing(Worlds()) as worlds:
        yield worlds


def test_a_case_leaves_nothing_to_the_next(world: World, script: Path, tmp_path: Path) -> None:
    changed = world.run(script, "changes_what_it_can")
    for rank in range(2):
        assert f"[{rank}] changed by {rank}" in changed.output
    found = world.run(script, "tells_what_it_finds", folder=tmp_path).told
    assert len({told.pop("pid") for told in found}) == 2
    for told in found:
        assert told.pop("name").startswith("dense")
        assert told == {
            "dtype": "float32",
            "eager": False,
            "environment": False,
            "directory": str(tmp_path),
            "replicas": 2,
            "strategy": "DropInStrategy",
        }


def test_a_case_that_fails_or_hangs_names_itself_and_ends_its_world(own_worlds: Worlds, script: Path) -> None:
    pids = [told["pid"] for told in own_worlds.of(2).run(script, "tells_what_it_finds").told]
    with pytest.raises(AssertionError, match=r"case 'fails_on_one_rank' failed\n(.|\n)*ArithmeticError: on one rank"):
        own_worlds.of(2).run(script, "fails_on_one_rank")
    assert not until_gone(lambda: running(pids))
    alone = own_worlds.not_launched
    [told] = alone.run(script, "tells_what_it_finds").told
    with pytest.raises(AssertionError, match="case 'hangs' failed\n--- rank 0: not ended within 2 s"):
        alone.run(script, "hangs", limit_seconds=2.0)
    assert not until_gone(lambda: running([told["pid"]]))
