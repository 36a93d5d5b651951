"""PipeDream and 2BW: stages do not wait for each other between batches, and compute with the weights of the papers."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

_SCRIPT = Path(__file__).with_name("asynchronous_job.py")
_ON_ALL = (
    "pipedream 1 False: the weights of the papers",
    "pipedream 1 True: the weights of the papers",
    "pipedream_2bw {stages} False: the weights of the papers",
    "pipedream: as one process with late weights",
    "pipedream_2bw: as one process with late weights",
    "pipedream: batches of several shapes",
)


@pytest.mark.parametrize(
    ("workers", "stages", "learns"),
    [
        (2, 2, ()),
        pytest.param(
            2, 2, ("pipedream: learns the digits", "pipedream_2bw: learns the digits"), marks=pytest.mark.proof
        ),
        pytest.param(3, 3, (), marks=pytest.mark.proof),  # versions that are late by two
        pytest.param(4, 2, (), marks=pytest.mark.proof),
    ],
)
def test_gradients_are_of_late_weights(tmp_path: Path, workers: int, stages: int, learns: tuple[str, ...]) -> None:
    arguments = (tmp_path, str(stages), *(["digits"] if learns else []))
    ended = run_workers(workers, _SCRIPT, *arguments, folder=tmp_path, limit_seconds=400)
    assert ended.code == 0, ended.output
    assert ended.output.count("stages under 'pipedream' do not wait") == 1, ended.output
    for line in (*_ON_ALL, *learns):
        assert ended.output.count(line.format(stages=stages)) == workers, ended.output
