"""Training on a `PyDataset` whose items some ranks make: one function a case, each run by every rank of a world."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from paceline.comm.world import current_world

CASES: dict[str, Callable[..., Any]] = {}


def run_case(name: str, *arguments: str) -> Any:
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(3)
    return CASES[name](*arguments)


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


class Recorder(keras.Model):
    """Keeps the rows of each step and what their loss is."""

    def train_step(self, data: Any) -> Any:
        self.seen.append(listed(data))
        return super().train_step(data)


def listed(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: listed(one) for name, one in data.items()}
    return [listed(one) for one in data] if isinstance(data, (tuple, list)) else np.asarray(data).tolist()


def model_of() -> Any:
    inputs = keras.Input((3,), name="a")
    model = Recorder(inputs, keras.layers.Dense(1)(inputs))
    model.seen = []
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    return model


class Items(keras.utils.PyDataset):
    """Items of one to nine rows, in an order that NumPy's shared generator shuffles."""

    def __init__(self, number: int = 7, **options: Any) -> None:
        super().__init__(**options)
        self.order = np.arange(number)
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Any:
        if "CALLS" in os.environ:
            with Path(os.environ["CALLS"]).open("a") as calls:
                calls.write(f"{index}\n")
        return self.item(int(self.order[index]))

    def item(self, number: int) -> Any:
        x = np.random.default_rng(number).normal(size=(1 + 5 * number % 9, 3))
        return x, x.sum(1)

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.order)


def told(model: Any, **others: Any) -> dict[str, Any]:
    """What the steps of a rank have seen, which is the whole batch where they are eager, and what was drawn."""
    weights = [weight.ravel().tolist() for weight in model.get_weights()]
    return {"seen": model.seen, "same": {"next": [np.random.rand(), random.random()], "weights": weights, **others}}


def fit(data: Any, model: Any = None, **options: Any) -> dict[str, Any]:
    model = model or model_of()
    model.fit(data, **{"epochs": 3, "verbose": 0, **options})
    return told(model, order=data.order.tolist())


@case
def pairs() -> Any:
    return fit(Items())


@case
def pairs_with_threads() -> Any:
    return fit(Items(workers=3))


@case
def pairs_with_processes() -> Any:
    return fit(Items(workers=2, use_multiprocessing=True))


@case
def dictionaries_with_weights() -> Any:
    class Named(Items):
        def item(self, number: int) -> Any:
            x, y = super().item(number)
            return {"a": x}, y[:, np.newaxis].astype("float32"), np.arange(len(y), dtype="float32")

    return fit(Named())


@case
def lists_and_class_weights() -> Any:
    class Classes(Items):
        def item(self, number: int) -> Any:
            x, y = super().item(number)
            return [np.asfortranarray(x), (y > 0).astype("int8")]

    return fit(Classes(workers=2), class_weight={0: 1.0, 1: 3.0}, shuffle=False)


@case
def numbers_drawn_in_items() -> Any:
    class Drawing(Items):
        def item(self, number: int) -> Any:
            x, y = super().item(number)
            return x + np.random.normal(size=x.shape) + random.random(), y

    return fit(Drawing())


@case
def numbers_drawn_in_late_items() -> Any:
    """From the second epoch on, when nobody looks any more."""

    class Drawing(Items):
        is_late = False

        def item(self, number: int) -> Any:
            x, y = super().item(number)
            return x + (np.random.normal(size=x.shape) if self.is_late else 0), y

        def on_epoch_end(self) -> None:
            super().on_epoch_end()
            self.is_late = True

    return fit(Drawing())


@case
def numbers_drawn_in_threads() -> Any:
    """Which item gets which number is chance, but not what is left when all have been drawn."""

    class Drawing(Items):
        def item(self, number: int) -> Any:
            np.random.normal(size=4)
            return super().item(number)

    return fit(Drawing(workers=2))


@case
def items_that_change_the_object() -> Any:
    class Counting(Items):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.counts, self.rng = {"all": 0}, np.random.default_rng(4)

        def item(self, number: int) -> Any:
            self.counts["all"] += 1
            x, y = super().item(number)
            return x + self.rng.normal(), y + self.counts["all"]

        def on_epoch_end(self) -> None:
            self.order = np.random.default_rng(self.counts["all"]).permutation(self.order)

    found = []
    for workers in (1, 2):
        data, model = Counting(workers=workers), model_of()
        if workers == 1:
            found.append(fit(data, model))
        else:  # threads add in any order
            fit(data, model)
        found.append(
            {"seen": [], "same": {"order": data.order.tolist(), "counts": data.counts, "rng": data.rng.normal()}}
        )
    return {"seen": [one["seen"] for one in found], "same": [one["same"] for one in found]}


@case
def other_calls() -> Any:
    """Validation of a part, evaluation, prediction, and a second `fit` over the same object."""

    class Inputs(Items):
        def item(self, number: int) -> Any:
            return super().item(number)[0]

    model, data, held_back = model_of(), Items(), Items(4, workers=2)
    history = model.fit(data, epochs=2, verbose=0, validation_data=held_back, validation_steps=2).history
    evaluated = model.evaluate(held_back, verbose=0)
    predicted = model.predict(Inputs(5), verbose=0).tolist()
    again = model.fit(data, epochs=1, verbose=0, validation_data=Items(3)).history
    return told(model, history=history, evaluated=evaluated, predicted=predicted, again=again)


@case
def endless_items() -> Any:
    class Endless(Items):
        def __getitem__(self, index: int) -> Any:
            return self.item(index)

        @property
        def num_batches(self) -> None:
            return None

    return fit(Endless(), steps_per_epoch=4)


@case
def fewer_steps_than_items() -> Any:
    class Ordered(Items):
        def on_epoch_end(self) -> None:
            pass

    return fit(Ordered(), steps_per_epoch=3, shuffle=False, epochs=4)


@case
def stopped_in_the_middle_of_an_epoch() -> Any:
    """Then another fit reads the rest of nothing: an epoch begins anew."""

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 2

    class Ordered(Items):
        def on_epoch_end(self) -> None:
            pass

    model = model_of()
    for workers in (1, 2):
        data = Ordered(40, workers=workers)
        for _ in range(2):
            model.fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[Stop()])
    return told(model)


@case
def an_exception_that_the_script_catches() -> Any:
    class Broken(Items):
        def item(self, number: int) -> Any:
            if number == 5:
                raise KeyError(f"item {number}")
            return super().item(number)

    model, caught = model_of(), []
    for workers in (1, 2):
        try:
            model.fit(Broken(workers=workers), verbose=0, shuffle=False)
        except Exception as fault:
            caught.append(str(fault))
    model.fit(Items(), verbose=0, shuffle=False)
    return {"seen": model.seen, "same": {"has_caught": ["item 5" in one for one in caught]}}


@case
def executions(folder: str) -> Any:
    """How often this rank has called `__getitem__`, and how often it was not for Keras's look at the first ones."""
    found = {}
    for name, options in {"one": {}, "threads": {"workers": 2}}.items():
        calls = Path(folder) / f"{name}.{current_world().rank}"
        os.environ["CALLS"] = str(calls)
        try:
            model_of().fit(Items(50, **options), epochs=3, verbose=0)
        finally:
            del os.environ["CALLS"]
        found[name] = len(calls.read_text().split()) - 2
    return found


@case
def other_items_on_the_last_rank() -> Any:
    """Each rank makes its items of another order: rows would be missing, and others there twice."""
    from paceline.errors import DesynchronizedError

    rank, size = current_world().rank, current_world().size

    class Own(Items):
        def on_epoch_end(self) -> None:
            self.order = np.random.default_rng(rank == size - 1).permutation(len(self.order))

    try:
        fit(Own(20, workers=2), shuffle=False)
    except DesynchronizedError as fault:
        return str(fault)
    return "no error"


def numbered(calls: list[int]) -> Any:
    """Batches whose numbers nobody else can draw."""
    own = np.random.default_rng(int.from_bytes(os.urandom(4)))
    for number in range(9):
        calls.append(number)
        yield own.normal(size=(5, 3)), np.full(5, float(number))


@case
def a_generator_read_once_on_a_host() -> Any:
    """By one call after the other, by the script itself, and to its end."""
    from paceline.data import once_per_host

    model, calls = model_of(), list[int]()
    data = once_per_host(numbered(calls))
    first = next(data)
    model.fit(data, steps_per_epoch=2, epochs=2, verbose=0)
    between = next(data)
    rest = sum(len(y) for _, y in data)
    error = ""
    try:
        list(once_per_host(number // (2 - number) for number in range(9)))
    except ZeroDivisionError as fault:
        error = str(fault)
    same = {"first": listed(first), "between": listed(between), "rest": rest, "error": error}
    return {"seen": model.seen, "calls": calls, "same": same}
