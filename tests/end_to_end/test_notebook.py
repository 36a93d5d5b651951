"""`paceline.launch` in a Jupyter kernel, as a notebook shows it."""

import os
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from notebook_rows import notebook_rows

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 360

CELLS = (
    """
import paceline

def train(epochs):
    import time, keras, numpy as np
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    waits = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.1))
    history = model.fit(np.ones([64, 4]), np.ones([64, 1]), batch_size=8, epochs=epochs, callbacks=[waits])
    return paceline.rank(), history.history["loss"]
""",
    "results = paceline.launch(train, workers=2, args=(2,))",
    "print(results[0][1] == results[1][1], [rank for rank, _ in results])",
)


class Reader(nbclient.NotebookClient):
    """Notes what the kernel sends while a cell runs."""

    heard: list[str]

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "stream":
            self.heard.append(msg["content"]["text"])
        return super().process_message(msg, cell, cell_index)


def test_the_progress_bar_is_live_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe of the launcher's hid it until the end of an epoch."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    reader = Reader(
        notebook, timeout=LIMIT_SECONDS, kernel_name="python3", resources={"metadata": {"path": os.fspath(tmp_path)}}
    )
    reader.heard = []
    reader.execute()
    bars = [text for text in reader.heard if "\r" in text and "/8" in text]
    assert len(bars) >= 8, reader.heard
    rows = notebook_rows("".join(reader.heard))
    assert [row for row in rows if "/8" in row and "8/8" not in row] == []
    assert len([row for row in rows if row.startswith("[0] 8/8")]) == 2
    assert rows[-2] == "True [0, 1]", rows
