"""What Keras's own steps execute: operations with their attributes and values, to try the partitioner's rules on.

    made = corpus("layers.Dense", extent=Extent.FIRST)
    for instance in made.instances:
        if instance.runs_alone:
            outputs, assigned = instance.run([value.content for value in instance.inputs])

`Value.dims` tells which dimensions count rows: (5, 7) is rows, (45, 63) nine times the rows, (4, 4) is fixed. What a
corpus holds is kept in `.cache`, which may be removed at any time.
"""

import pickle
from hashlib import sha256
from pathlib import Path

import keras
import tensorflow as tf

from .instances import Corpus, Instance, StepInput, Value
from .interpreter import run_whole
from .steps import REFUSALS, ROWS, Extent, TracedStep, refusal_noted, traced_steps
from .table import lines, op_types

__all__ = [
    "ROWS",
    "Corpus",
    "Extent",
    "Instance",
    "StepInput",
    "TracedStep",
    "Value",
    "corpus",
    "lines",
    "op_types",
    "run_whole",
    "traced_steps",
]

_CACHE = Path(__file__).parent / ".cache"


def corpus(*classes: str, extent: Extent = Extent.OPTIONS) -> Corpus:
    """What the steps of the classes execute whose path begins with one of these (none given: of all classes)."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    what = f"{classes} {extent} {keras.__version__} {tf.__version__}".encode() + sources
    cached = _CACHE / sha256(what).hexdigest()
    if cached.exists():
        made: Corpus = pickle.loads(cached.read_bytes())
        return made
    made = Corpus()
    REFUSALS.clear()
    for step in traced_steps(lambda name: not classes or name.startswith(classes), extent):
        step.fits = False
        with refusal_noted(step.name):
            made.add(step)
            step.fits = True
        keras.utils.clear_session(free_memory=False)
    made.refusals = dict(REFUSALS)
    _CACHE.mkdir(exist_ok=True)
    cached.write_bytes(pickle.dumps(made))
    return made
