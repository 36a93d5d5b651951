"""The MNIST CNN of `parameter_servers/` on the chief, without end; marks each step, with the worker that has made it.

paceline run --workers 2 --ps 1 --max-restarts 9 chief.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "parameter_servers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "recovery"))

import keras
from digits import dataset
from marks import mark

import paceline
from paceline.parameter_server import step_dispatcher

L = keras.layers


class MarkedExecution(step_dispatcher.Execution):
    """Marks when the results of a worker's step are there."""

    def run(self) -> None:
        super().run()
        if self.results is not None:
            mark("step", self.worker)


def main() -> None:
    step_dispatcher.Execution = MarkedExecution
    strategy = paceline.ParameterServerStrategy()
    with strategy.scope():
        body = [L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, activation="relu")]
        model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), *body, L.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"])
    model.fit(dataset(), steps_per_epoch=1_000_000, verbose=0)


main()
