"""One `fit` over an input, each rank on a core of its own; the chief writes the rows a second of a second fit.

    worker.py KIND divided|whole

KIND is the input (`input_kinds.py`); `whole` leaves the maps on all rows on every rank, for comparison.
"""

import json
import os
import sys
import time
from pathlib import Path

RANK = int(os.environ.get("PACELINE_RANK", "0"))
CORES = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORES[RANK % len(CORES)]})

import keras  # noqa: E402  # after the cores are chosen: TensorFlow counts them
from input_kinds import ROWS, data_of, model_of  # noqa: E402


def main(kind: str, way: str) -> None:
    """Trains, and writes."""
    if way == "whole":
        from paceline.data.own_rows.stages import Whole
        from paceline.fit import epochs

        epochs.divided = lambda dataset: Whole()
    model, data = model_of(kind, keras), data_of(kind, keras)
    model.fit(**data, epochs=1, verbose=0)
    begin, processor_begin = time.perf_counter(), time.process_time()
    model.fit(**data, epochs=1, verbose=0)
    seconds, processor_seconds = time.perf_counter() - begin, time.process_time() - processor_begin
    rows = ROWS[kind]
    figures = {"rows_per_second": rows / seconds, "rows_per_processor_second": rows / processor_seconds}
    if RANK == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
