"""`paceline.launch` in a Jupyter kernel, as a notebook shows it."""

import os
import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from notebook_rows import notebook_rows

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 360

# The chief goes on when the notebook has shown its bar in the middle of an epoch.
CELLS = (
    """
import paceline

def train(epochs):
    import keras, numpy as np

    class Waits(keras.callbacks.Callback):
        same_on_all_ranks = True

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 4 and paceline.is_chief():
                with open("seen", "rb", buffering=0) as seen:
                    assert seen.read(1)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones([64, 4]), np.ones([64, 1]), batch_size=8, epochs=epochs, callbacks=[Waits()])
    return paceline.rank(), history.history["loss"]
""",
    "results = paceline.launch(train, workers=2, args=(2,))",
    "print(results[0][1] == results[1][1], [rank for rank, _ in results])",
)


class Reader(nbclient.NotebookClient):
    """Notes what the kernel sends while a cell runs, and tells the chief when a bar is in the middle of an epoch."""

    heard: list[str]
    seen: int
    """A pipe to the chief."""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "stream":
            self.heard.append(msg["content"]["text"])
            row = notebook_rows("".join(self.heard))[-1]
            if re.search(r" [1-7]/8 ", row):
                os.write(self.seen, b"1")
        return super().process_message(msg, cell, cell_index)


def test_the_progress_bar_is_live_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe of the launcher's hid it until the end of an epoch."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    reader = Reader(
        notebook, timeout=LIMIT_SECONDS, kernel_name="python3", resources={"metadata": {"path": os.fspath(tmp_path)}}
    )
    os.mkfifo(tmp_path / "seen")
    # For both directions, as nobody reads yet.
    reader.heard, reader.seen = [], os.open(tmp_path / "seen", os.O_RDWR)
    try:
        reader.execute()
    finally:
        os.close(reader.seen)
    rows = notebook_rows("".join(reader.heard))
    assert [row for row in rows if "/8" in row and "8/8" not in row] == []
    assert len([row for row in rows if row.startswith("[0] 8/8")]) == 2
    assert rows[-2] == "True [0, 1]", rows
