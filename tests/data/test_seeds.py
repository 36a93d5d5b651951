"""Ranks draw the same numbers without the script's doing, and a script that seeds itself gets what it asked for."""

import json
from pathlib import Path
from typing import Any

from programs import run_python

_DRAW = """
import json, sys
from paceline.data.order.seeds import agree_seeds
agree_seeds(int(sys.argv[1]))
assert "numpy" not in sys.modules
import random
import numpy as np
from numpy.random import default_rng
drawn = {
    "python": random.random(),
    "numpy": np.random.rand(),
    "generators": [default_rng().random(), np.random.default_rng().random(), np.random.default_rng(None).random()],
    "seeded": [default_rng(3).random(), np.random.default_rng(seed=3).random()],
}
print(json.dumps(drawn))
"""


def _drawn(seed: int, folder: Path) -> dict[str, Any]:
    ended = run_python("-c", _DRAW, str(seed), folder=folder)
    assert ended.code == 0, ended.output
    return json.loads(ended.output)


def test_the_jobs_seed_decides_what_is_drawn(tmp_path: Path) -> None:
    first, again, other = (_drawn(seed, tmp_path) for seed in (7, 7, 8))
    assert first == again
    for name in ("python", "numpy", "generators"):
        assert first[name] != other[name]
    assert len(set(first["generators"])) == 3, "generators of one process differ from each other"


def test_a_generator_with_a_seed_is_numpys_own(tmp_path: Path) -> None:
    import numpy as np

    assert _drawn(7, tmp_path)["seeded"] == [np.random.default_rng(3).random()] * 2


def test_a_standby_draws_what_the_import_of_keras_does(tmp_path: Path) -> None:
    """``rich``, which Keras imports, draws a number: a standby had imported it before, and drew others than a worker.

    Nor did a worker draw what plain Python does, where a script seeds `random` before it imports Keras.
    """
    draw = "import random; random.seed(3); from rich import style; print(random.random()); import rich"
    agreed = "from paceline.data.order import seeds; seeds.agree_seeds(7); seeds.draw_at_first_import_of_keras()"
    scripts = (draw, f"{agreed}; {draw}", f"import rich.style; {agreed}; {draw}")
    plain, usual, standby = (run_python("-c", script, folder=tmp_path) for script in scripts)
    assert plain.code == 0, plain.output
    assert plain.output == usual.output == standby.output
