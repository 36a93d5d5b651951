"""Files of rows in a run that goes on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest

from paceline.fit.snapshots import row_files
from paceline.fit.snapshots.restored import Restored

TEXT = "epoch,loss\n0,0.5\n1,0.4\n"


@pytest.fixture
def logger(tmp_path: Path) -> Any:
    path = tmp_path / "rows.csv"
    path.write_text(TEXT)
    return keras.callbacks.CSVLogger(str(path))


def written_by_rank(rank: int, position: int | None, *, same_world: bool = True) -> tuple[Restored, Any]:
    others: Any = () if same_world else ({}, {})
    info: Any = None
    return Restored(info, {}, {"row_files": [position]}, {}, others), SimpleNamespace(rank=rank)


def test_a_logger_is_known_among_loggers_whatever_else_the_script_has_now(logger: Any) -> None:
    row_files.begin([keras.callbacks.TerminateOnNaN(), logger], *written_by_rank(0, len("epoch,loss\n0,0.5\n")))
    assert Path(logger.filename).read_text() == "epoch,loss\n0,0.5\n"
    assert logger.append


@pytest.mark.parametrize("same_world", [True, False])
def test_a_file_that_another_rank_had_written_stays(logger: Any, same_world: bool) -> None:
    position = None if same_world else 3  # the chief's, where another number of ranks goes on
    row_files.begin([logger], *written_by_rank(1, position, same_world=same_world))
    assert Path(logger.filename).read_text() == TEXT
    assert not logger.append


def test_a_shorter_file_is_not_the_one_that_was_written(logger: Any) -> None:
    row_files.begin([logger], *written_by_rank(0, len(TEXT) + 1))
    assert Path(logger.filename).read_text() == TEXT
    assert not logger.append


def test_the_next_fit_begins_the_file_anew_as_the_script_says(logger: Any) -> None:
    row_files.begin([logger], *written_by_rank(0, len(TEXT)))
    logger.on_train_begin()
    logger.on_train_end()
    _, world = written_by_rank(0, None)
    row_files.begin([logger], None, world)
    logger.on_train_begin()
    logger.on_epoch_end(0, {"loss": 0.3})
    logger.on_train_end()
    header, row = Path(logger.filename).read_text().splitlines()
    assert header.startswith("epoch,loss")
    assert row.startswith("0,0.3")


def test_a_logger_that_appends_by_itself_goes_on_doing_so(logger: Any) -> None:
    logger.append = True
    resumed, world = written_by_rank(0, len(TEXT))
    row_files.begin([logger], resumed, world)
    row_files.begin([logger], None, world)
    assert logger.append


def test_how_far_the_open_ones_were_written(logger: Any) -> None:
    closed = keras.callbacks.CSVLogger(logger.filename)
    logger.on_train_begin()
    logger.on_epoch_end(0, {"loss": 0.5})
    logger.on_train_end()
    assert row_files.positions([closed]) == [None]
    logger.append = True
    logger.on_train_begin()
    logger.csv_file.seek(0, 2)
    assert row_files.positions([keras.callbacks.TerminateOnNaN(), closed, logger]) == [
        None,
        Path(logger.filename).stat().st_size,
    ]
    logger.csv_file.close()
