import io
import json
import random
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.resilience.object_state import (
    CannotHoldError,
    capture,
    decode,
    encode,
    encode_captured,
    frozen,
    restore,
)

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text())
KEYS = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.just("!"))
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=5)),
    ),
    max_leaves=10,
)


def through_a_file(value: Any) -> Any:
    tensors: dict[str, Any] = {}
    text = json.dumps(encode(value, tensors, "at"), allow_nan=False, sort_keys=True)
    return decode(json.loads(text), {name: np.array(tensor) for name, tensor in tensors.items()})


@given(VALUES)
def test_comes_back_as_it_was(value: Any) -> None:
    back = through_a_file(value)
    assert repr(back) == repr(value)  # NaN is not equal to itself; dictionaries have an order
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.float32(0.1), np.array(7), np.array([], np.int8), np.array([np.nan, np.inf])],
)
def test_arrays_come_back_bit_by_bit(array: Any) -> None:
    back = through_a_file({"deep": [array]})["deep"][0]
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert isinstance(back, np.ndarray) == isinstance(array, np.ndarray)


@pytest.mark.parametrize("make", [list, tuple, set, deque])
@pytest.mark.parametrize("number", [1, -(2**63), 0.1, 2**63, True, np.float32(3)], ids=repr)
def test_many_numbers_come_back_with_their_types(make: Any, number: Any) -> None:
    value = {"many": make([*(type(number)(one) for one in range(80)), number])}
    back = through_a_file(value)
    assert back == value
    assert [*map(type, back["many"])] == [*map(type, value["many"])]


def test_many_numbers_cost_one_array_and_no_text() -> None:
    tensors: dict[str, Any] = {}
    text = json.dumps(encode({"random": random.Random(1), "of_steps": dict.fromkeys(range(500), 0.5)}, tensors, "at"))
    assert len(text) < 500
    assert sum(array.size for array in tensors.values()) == 625 + 500 + 500
    values = [float("nan"), float("-inf"), -0.0] * 30
    assert repr(through_a_file(values)) == repr(values)


def test_an_object_is_looked_at_once_and_gives_what_capture_finds() -> None:
    tensors: dict[str, Any] = {}
    holder = Holder()
    encoded = encode_captured(holder, tensors, "it", frozenset({"model"}))
    assert not {"function", "model"} & encoded["state"].keys()
    assert "it/array" in tensors
    expected = capture(holder, frozenset({"model"}))
    assert encoded["state"].keys() == expected["state"].keys()
    after = Holder()
    after.count, after.array[1] = 0, 7
    restore(after, decode(json.loads(json.dumps(encoded)), tensors))
    assert (after.count, after.best, after.array.tolist()) == (3, np.inf, [0, 1, 2, 3])
    assert draws(after) == draws(holder)


def test_says_what_it_cannot_hold() -> None:
    with pytest.raises(CannotHoldError, match=r"at/file: a _io\.StringIO"):
        encode({"file": io.StringIO()}, {}, "at")


class Holder:
    def __init__(self) -> None:
        self.count = 3
        self.best = np.inf
        self.seen = [1.5]
        self.generators: Any = [random.Random(1), np.random.default_rng(2), np.random.RandomState(3)]
        self.array = np.arange(4)
        self.function = print
        self.model = "left out"


def draws(holder: Holder) -> list[float]:
    python, new, old = holder.generators
    return [python.random(), new.random(), old.random_sample()]


def test_attributes_go_back_into_the_objects_that_others_hold_too() -> None:
    before, after = Holder(), Holder()
    draws(before)
    before.count, before.best, before.array[2] = 5, 0.25, 9
    before.seen.append(2.5)
    state = through_a_file(capture(before, frozenset({"model"})))
    seen, array, generators = after.seen, after.array, [*after.generators]
    after.model = "its own"
    restore(after, state)
    assert (after.count, after.best, after.model) == (5, 0.25, "its own")
    assert after.seen is seen == [1.5, 2.5]
    assert after.array is array
    assert array.tolist() == [0, 1, 9, 3]
    assert after.function is print
    assert [*map(id, after.generators)] == [*map(id, generators)]
    assert draws(after) == draws(before)


def test_large_attributes_may_be_left_out() -> None:
    holder = Holder()
    assert "array" not in capture(holder, max_bytes=holder.array.nbytes - 1)["state"]
    assert "array" in capture(holder, max_bytes=holder.array.nbytes)["state"]


class Hooked:
    def __init__(self) -> None:
        self.inside = object()
        self.number = 0

    def state_dict(self) -> dict[str, int]:
        return {"n": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["n"] + 100


def test_an_object_that_knows_its_state_is_asked() -> None:
    hooked = Hooked()
    hooked.number = 7
    state = through_a_file(capture(hooked))
    restore(hooked, state)
    assert hooked.number == 107


def test_a_frozen_value_does_not_change_with_its_original() -> None:
    array, inner = np.zeros(2), [1]
    kept = frozen({"array": array, "list": inner})
    array[:] = 5
    inner.append(2)
    assert kept["array"].tolist() == [0, 0]
    assert kept["list"] == [1]
