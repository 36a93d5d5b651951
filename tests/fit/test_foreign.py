"""Libraries that divide data see one worker, as `fit` divides the rows. The cases are in `foreign_jobs.py`."""

from pathlib import Path

import pytest
from foreign_jobs import ROWS, SHARDS, write

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "foreign_jobs.py"


@pytest.mark.parametrize("case", ["once per host", pytest.param("on each rank", marks=pytest.mark.proof)])
def test_web_dataset_is_read_to_its_end(worlds: Worlds, tmp_path: Path, case: str) -> None:
    """RANK and WORLD_SIZE were exported, so WebDataset gave each rank half of the files, of which `fit` took half."""
    pytest.importorskip("webdataset")
    write(tmp_path)
    told = worlds.of(2).run(SCRIPT, case, tmp_path).told
    rows = [*range(SHARDS * ROWS)]
    assert told[0]["given"] == rows
    assert told[1]["given"] == (rows if case == "on each rank" else [])
    for one in told:
        assert one["loss"] == pytest.approx(sum(rows) / len(rows), rel=1e-5)
