import io
import json
import random
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.resilience.object_state import CannotHoldError, decode, encode, frozen

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


def test_says_what_it_cannot_hold() -> None:
    with pytest.raises(CannotHoldError, match=r"at/file: a _io\.StringIO"):
        encode({"file": io.StringIO()}, {}, "at")


def test_many_strings_cost_arrays_and_no_text() -> None:
    tensors: dict[str, Any] = {}
    names = [f"path/{number}/\u00e9.jpg" for number in range(500)]
    assert len(json.dumps(encode({"files": names}, tensors, "at"))) < 500
    assert sum(array.nbytes for array in tensors.values()) < 20 * 500 + 8 * 500
    for value in (names, tuple(names), ["", "\udcff", *names], [""] * 80, [*names, None], {*names}):
        assert through_a_file(value) == value


def test_a_frozen_value_does_not_change_with_its_original_nor_with_its_copies() -> None:
    array, inner = np.zeros(2), [1]
    tensors: dict[str, Any] = {}
    kept = frozen(encode({"array": array, "list": inner}, tensors), tensors)
    array[:] = 5
    inner.append(2)
    kept.value["array"][:] = 6
    assert kept.value["array"].tolist() == [0, 0]
    assert kept.value["list"] == [1]
