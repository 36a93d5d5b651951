"""Every example runs as its docstring says, with tiny settings, and a pair's two sides compute the same."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ports import HoldPorts
from programs import run_python, start_python
from worlds import Worlds

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_SECONDS = 120.0
TINY_TRAIN = ("--epochs", "2", "--num-train", "300", "--floatx", "float64")

pytestmark = pytest.mark.processes


def trained(folder: Path) -> list[dict[str, np.ndarray]]:
    """What the processes of train.py wrote there."""
    return [dict(np.load(path)) for path in sorted(folder.glob("*.npz"))]


def test_the_same_file_plainly_and_on_two_workers(worlds: Worlds, tmp_path: Path) -> None:
    plain, spread = tmp_path / "plain", tmp_path / "spread"
    plain.mkdir()
    spread.mkdir()
    script = EXAMPLES / "train.py"
    worlds.plain.run_script(script, *TINY_TRAIN, "--result", plain, folder=tmp_path)
    worlds.of(2).run_script(script, *TINY_TRAIN, "--result", spread, folder=tmp_path)

    [one] = trained(plain)
    ranks = trained(spread)
    assert len(ranks) == 2
    for name in one.keys() - {"epoch_seconds"}:
        np.testing.assert_array_equal(ranks[0][name], ranks[1][name], err_msg=f"{name} differs between the workers")
        np.testing.assert_allclose(ranks[0][name], one[name], rtol=1e-9, atol=1e-12, err_msg=name)


def losses(output: str) -> list[str]:
    return re.findall(r"epoch \d+: loss [0-9.]+", output)


@pytest.mark.parametrize("script", ["custom_loop.py", pytest.param("custom_loop_plain.py", marks=pytest.mark.proof)])
def test_custom_loop_computes_what_its_plain_twin_computes(worlds: Worlds, script: str, tmp_path: Path) -> None:
    """The plain one itself runs on several workers, too, each of which prints what one prints."""
    tiny = ("2", "512")
    plain = worlds.plain.run_script(EXAMPLES / "custom_loop_plain.py", *tiny, folder=tmp_path)
    spread = worlds.of(2).run_script(EXAMPLES / script, *tiny, folder=tmp_path)
    assert len(losses(plain.output)) == 2
    for one, other in zip(losses(plain.output), sorted({*losses(spread.output)}), strict=True):
        assert float(one.split()[-1]) == pytest.approx(float(other.split()[-1]), abs=2e-5)


@pytest.mark.parametrize("script", ["multi_worker.py", pytest.param("multi_worker_plain.py", marks=pytest.mark.proof)])
def test_multi_worker_under_the_launcher(worlds: Worlds, script: str, tmp_path: Path) -> None:
    ended = worlds.of(2).run_script(EXAMPLES / script, "1", "4", folder=tmp_path)
    accuracies = dict(re.findall(r"worker (\d) of 2: accuracy ([0-9.]+)", ended.output))
    assert accuracies.keys() == {"0", "1"}
    assert accuracies["0"] == accuracies["1"]


@pytest.mark.proof
def test_multi_worker_by_hand(tmp_path: Path, hold_ports: HoldPorts) -> None:
    addresses = [f"localhost:{port}" for port in hold_ports(2)]
    programs = [
        start_python(
            EXAMPLES / "multi_worker.py",
            "1",
            "4",
            folder=tmp_path,
            variables={
                "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
            },
        )
        for index in range(2)
    ]
    try:
        ended = [program.ended(LIMIT_SECONDS) for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert [one.code for one in ended] == [0, 0], "\n".join(one.output for one in ended)
    found = [re.search(r"worker (\d) of 2: accuracy ([0-9.]+)", one.output) for one in ended]
    assert all(found), "\n".join(one.output for one in ended)
    assert [match.group(1) for match in found if match] == ["0", "1"]
    assert len({match.group(2) for match in found if match}) == 1


@pytest.mark.proof
def test_notebook_function_returns_what_its_plain_twin_computes(worlds: Worlds, tmp_path: Path) -> None:
    tiny = ("2", "512")
    plain = worlds.plain.run_script(EXAMPLES / "notebook_function_plain.py", *tiny, folder=tmp_path)
    spread = run_python(EXAMPLES / "notebook_function.py", *tiny, folder=tmp_path, limit_seconds=LIMIT_SECONDS)
    assert spread.code == 0, spread.output
    figures = {
        rank: (float(loss), float(accuracy))
        for rank, loss, accuracy in re.findall(r"rank (\d): loss ([0-9.]+), accuracy ([0-9.]+)", spread.output)
    }
    [alone] = re.findall(r"rank 0: loss ([0-9.]+), accuracy ([0-9.]+)", plain.output)
    assert figures.keys() == {"0", "1"}
    assert figures["0"] == figures["1"]
    assert figures["0"] == pytest.approx(tuple(float(figure) for figure in alone), abs=2e-4)


def test_the_tutorial_on_parameter_servers(worlds: Worlds, tmp_path: Path) -> None:
    # Its own assertions: the steps counted, and the embedding's two shards, each on its server.
    ended = worlds.with_other_servers.run_script(EXAMPLES / "parameter_server.py", "2", "5", folder=tmp_path)
    figures = dict(re.findall(r"(fit: loss|loop: accuracy) ([0-9.]+)", ended.output))
    assert float(figures["fit: loss"]) < 10.0
    assert float(figures["loop: accuracy"]) > 0.9


@pytest.mark.proof
@pytest.mark.parametrize("script", ["transformer.py", "unet.py"])
def test_stages_compute_what_plain_keras_computes(worlds: Worlds, script: str, tmp_path: Path) -> None:
    tiny = ("--epochs", "1", "--num-train", "64", "--floatx", "float64")

    def figures(output: str) -> list[float]:
        found = re.findall(r"(?:training losses|test loss) ([0-9.]+)", output)
        assert len(found) == 2, output
        return [float(figure) for figure in found]

    alone = worlds.not_launched.run_script(EXAMPLES / script, *tiny, folder=tmp_path)
    staged = worlds.of(2, in_stages=True).run_script(EXAMPLES / script, *tiny, folder=tmp_path)
    assert figures(staged.output) == pytest.approx(figures(alone.output), abs=1e-9)
