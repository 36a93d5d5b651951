"""Files of rows in a run that goes on, or begins anew."""

import functools
from pathlib import Path
from typing import Any

import keras
import pytest

from paceline.fit.snapshots import callback_files
from paceline.resilience.parts import Saved
from paceline.store.snapshots import SnapshotStore

TEXT = "epoch,loss\n0,0.5\n1,0.4\n"


@pytest.fixture
def logger(tmp_path: Path) -> Any:
    path = tmp_path / "rows.csv"
    path.write_text(TEXT)
    return keras.callbacks.CSVLogger(str(path))


def go_on(callbacks: list[Any], rank: int, logger: Any, position: int | None, *, same_ranks: bool = True) -> None:
    """On a rank which, or in whose place the first one, had written so far."""
    written = {} if position is None else {logger.filename: position}
    callback_files.csv_part(callbacks, leads=rank == 0).restore(Saved(written, {}, same_ranks))


def test_a_logger_is_known_by_its_file_whatever_else_the_script_has_now(logger: Any, tmp_path: Path) -> None:
    """They were matched by their order: a logger more in front, and the rows of another file were cut."""
    other = keras.callbacks.CSVLogger(str(tmp_path / "new.csv"))
    Path(other.filename).write_text(TEXT)
    go_on([other, logger], 0, logger, len("epoch,loss\n0,0.5\n"), same_ranks=False)
    assert Path(logger.filename).read_text() == "epoch,loss\n0,0.5\n"
    assert Path(other.filename).read_text() == TEXT
    assert (logger.append, other.append) == (True, False)


@pytest.mark.parametrize("same_ranks", [True, False])
def test_a_file_that_another_rank_had_written_stays(logger: Any, same_ranks: bool) -> None:
    position = None if same_ranks else 3  # the chief's, where another number of ranks goes on
    go_on([logger], 1, logger, position, same_ranks=same_ranks)
    assert Path(logger.filename).read_text() == TEXT
    assert not logger.append


def test_a_shorter_file_is_not_the_one_that_was_written(logger: Any) -> None:
    go_on([logger], 0, logger, len(TEXT) + 1)
    assert Path(logger.filename).read_text() == TEXT
    assert not logger.append


def test_the_next_fit_begins_the_file_anew_as_the_script_says(logger: Any) -> None:
    go_on([logger], 0, logger, len(TEXT))
    logger.on_train_begin()
    logger.on_train_end()
    callback_files.begin([logger], lambda _: pytest.fail("a file that is begun anew needs no note"))
    logger.on_train_begin()
    logger.on_epoch_end(0, {"loss": 0.3})
    logger.on_train_end()
    header, row = Path(logger.filename).read_text().splitlines()
    assert header.startswith("epoch,loss")
    assert row.startswith("0,0.3")


def test_a_logger_that_appends_by_itself_goes_on_doing_so(logger: Any) -> None:
    logger.append = True
    go_on([logger], 0, logger, len(TEXT))
    callback_files.begin([logger], lambda _: None)
    assert logger.append


def test_rows_of_a_life_that_is_not_gone_on_from_are_set_aside(logger: Any, tmp_path: Path) -> None:
    """A job that died and left no intact snapshot trains its epochs again, and had their rows twice."""
    store, path = SnapshotStore(tmp_path), Path(logger.filename)
    logger.append = True

    def begin() -> None:
        callback_files.begin([logger], functools.partial(store.noted_first, "fit-1"))

    begin()
    for rows in ("0,0.3\n", "0,0.4\n"):
        path.write_text(TEXT + rows)
        begin()
        assert path.read_text() == TEXT
    assert (tmp_path / "rows.csv.cut").read_text() == "0,0.3\n"
    assert (tmp_path / "rows.csv.cut-2").read_text() == "0,0.4\n", "a second run's rows replaced the first one's"


def test_how_far_the_open_ones_were_written(logger: Any) -> None:
    closed = keras.callbacks.CSVLogger(logger.filename)
    logger.on_train_begin()
    logger.on_epoch_end(0, {"loss": 0.5})
    logger.on_train_end()
    assert callback_files.positions([closed]) == {}
    logger.append = True
    logger.on_train_begin()
    logger.csv_file.seek(0, 2)
    size = Path(logger.filename).stat().st_size
    assert callback_files.positions([keras.callbacks.TerminateOnNaN(), closed, logger]) == {logger.filename: size}
    logger.csv_file.close()
