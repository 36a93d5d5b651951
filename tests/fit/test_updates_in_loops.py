"""One launched worker updates its weights in loops, and computes what plain Keras computes."""

from pathlib import Path

import numpy as np
import pytest

from programs import run_python, run_workers

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

_SCRIPT = Path(__file__).with_name("updates_jobs.py")
_WITHOUT = {"small_weights", "compiled_for_xla", "draws_in_its_update"}
_REWRITTEN = {"every_option", "rows_of_a_table", "two_optimizers", "single_batches"}
"""TensorFlow's graph optimizer computes these updates in another way than Keras writes them, as by `rsqrt`."""


def test_one_worker_computes_what_plain_keras_does(tmp_path: Path) -> None:
    pytest.importorskip("llvmlite", reason="paceline[cpu] brings llvmlite, which compiles the loops")
    plain, launched = tmp_path / "plain", tmp_path / "launched"
    plain.mkdir()
    launched.mkdir()
    alone = run_python(_SCRIPT, str(plain), folder=tmp_path, limit_seconds=240)
    worker = run_workers(1, _SCRIPT, str(launched), folder=tmp_path, limit_seconds=240)
    assert alone.code == worker.code == 0, alone.output + worker.output
    loops = dict(line.split()[-2:] for line in worker.output.splitlines() if "LOOPS " in line)
    assert {name for name, number in loops.items() if number == "0"} == _WITHOUT
    assert {path.stem for path in plain.iterdir()} == loops.keys()
    for name in loops:
        with np.load(plain / f"{name}.npz") as expected, np.load(launched / f"{name}.npz") as found:
            for kind in expected.files:
                if name in _REWRITTEN:
                    np.testing.assert_allclose(found[kind], expected[kind], rtol=1e-5, atol=1e-6, err_msg=name)
                else:
                    assert found[kind].tobytes() == expected[kind].tobytes(), (name, kind)
