"""Whether an attribute is as the script had it must be seen of whatever value, also of one that changes in place."""

import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from paceline.resilience import initial_state
from paceline.resilience.attributes import attributes_of, encode_captured
from paceline.resilience.initial_state import initial_state_of, mark_changed, take_initial_state
from paceline.resilience.object_state import MAX_SMALL_BYTES


class Thing:
    """Something that a script hands over."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def handed(thing: Any, **options: Any) -> Any:
    return take_initial_state(thing, attributes_of(thing), **options)


def kept(thing: Any, path: str = "it") -> set[str]:
    known = initial_state_of(thing)
    assert known is not None
    return {*encode_captured(thing, {}, path, is_kept=known.has_changed)["state"]}


def in_place(*_: Any) -> None:
    """Whatever made the change has returned something."""


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "number": (lambda: 3, lambda value: 4),
    "zero": (lambda: 0.0, lambda value: -0.0),
    "type": (lambda: 1, lambda value: True),
    "path": (lambda: "/value/a", lambda value: "/a"),
    "place": (lambda: {"at": "a"}, lambda value: {"at": "b"}),
    "none": (lambda: None, lambda value: "set"),
    "list": (lambda: [1.5], lambda value: value.append(1.5)),
    "order": (lambda: [*range(100)], lambda value: value.reverse()),
    "texts": (lambda: [*map(str, range(100))], lambda value: value.reverse()),
    "array": (lambda: np.arange(9), lambda value: np.random.shuffle(value)),
    "shape": (lambda: np.zeros((2, 3)), lambda value: value.reshape(3, 2)),
    "dtype": (lambda: np.zeros(2, np.int32), lambda value: np.zeros(1, np.int64)),
    "empty": (lambda: np.zeros((0, 2)), lambda value: np.zeros((2, 0))),
    "texts_of_an_array": (lambda: np.array(["a", "b"]), lambda value: value[::-1].copy()),
    "python": (lambda: random.Random(1), lambda value: in_place(value.random())),
    "numpy": (lambda: np.random.default_rng(1), lambda value: in_place(value.random())),
    "legacy": (lambda: np.random.RandomState(1), lambda value: in_place(value.random_sample())),
    "in_a_dictionary": (lambda: {"a": [np.arange(9)]}, lambda value: value["a"][0].fill(0)),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_seen_and_nothing_else_is(case: str) -> None:
    make, change = CHANGES[case]
    random.seed(1)
    np.random.seed(1)
    thing = Thing(value=make(), other=make())
    handed(thing)
    assert kept(thing, "begin/source") == set()
    assert kept(thing, "source") == set()
    changed = change(thing.value)
    if changed is not None:
        thing.value = changed
    is_held = case != "texts_of_an_array"
    assert kept(thing) == ({"value"} if is_held else set())
    assert handed(thing).changed == {"value"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.Variable([1.0]),
        lambda: keras.Variable(np.ones(2), dtype="bfloat16"),
        lambda: {"rates": (tf.Variable(1.0),)},
    ],
    ids=["tensorflow", "bfloat16", "nested"],
)
def test_a_variable_is_kept_and_its_first_value_is_not(make: Callable[[], Any]) -> None:
    """It may be the model's: what it held before a snapshot gave the model its weights must not come back."""
    thing = Thing(value=make(), path="a")
    known = handed(thing, holds_values=True)
    assert known.take_values() == {"path": "a"}
    assert kept(thing) == {"value"}


def test_one_that_changes_and_comes_back_is_kept_all_the_same() -> None:
    """In a `fit` after it, too: the snapshot of the one in which it had changed may be gone."""
    thing = Thing(order=[1, 2], path="a", new=None)
    handed(thing)
    thing.order.reverse()
    assert kept(thing) == {"order"}
    thing.order.reverse()
    assert kept(thing) == {"order"}
    thing.path = "b"  # the script
    handed(thing)
    thing.late = 1
    assert kept(thing) == {"late", "order"}
    mark_changed(thing, ["new"])
    assert kept(thing) == {"late", "new", "order"}


def test_values_are_those_of_then_and_told_once() -> None:
    thing = Thing(seen=[1.5], array=np.arange(3), file=open)
    known = handed(thing, holds_values=True)
    thing.seen.append(2)
    thing.array[0] = 9
    values = known.take_values()
    assert values.keys() == {"seen", "array"}
    assert values["seen"] == [1.5]
    assert values["array"].tolist() == [0, 1, 2]
    assert known.take_values() == {}


def test_a_file_in_memory_is_not_read(tmp_path: Path) -> None:
    np.zeros(MAX_SMALL_BYTES + 1, np.uint8).tofile(tmp_path / "large")
    np.zeros(9, np.uint8).tofile(tmp_path / "small")
    thing = Thing(**{name: np.memmap(tmp_path / name, np.uint8, "r+") for name in ("large", "small")})
    handed(thing)
    thing.large[0] = thing.small[0] = 1
    assert kept(thing) == {"small"}


class Unhashable(Thing):
    """As a dataclass that compares its fields."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_what_is_known_goes_with_its_object() -> None:
    gc.collect()
    before = len(initial_state._initial_states)
    thing, other = Unhashable(a=1), Unhashable(a=1)
    assert handed(thing) is not handed(other)
    assert len(initial_state._initial_states) == before + 2
    del thing, other
    gc.collect()
    assert len(initial_state._initial_states) == before
