"""JSON with one spelling for each value."""

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.store.folder import DamagedSnapshotError
from paceline.store.json_bytes import from_bytes, sealed, to_bytes, unsealed

KEYS = st.text().filter(lambda key: key != "$float")  # refused: it stands for infinities
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(VALUES)
def test_values_come_back(value: object):
    assert from_bytes(to_bytes(value, "value"), "value") == value


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_order_of_keys_does_not_matter(value: dict[str, object]):
    assert to_bytes(value, "value") == to_bytes(dict(reversed(value.items())), "value")


def test_floats_without_a_number_in_json_come_back():
    low, high, none = from_bytes(to_bytes((-math.inf, math.inf, math.nan), "value"), "value")  # type: ignore[misc]
    assert (low, high) == (-math.inf, math.inf)
    assert math.isnan(none)
    assert b"Infinity" not in to_bytes([math.inf], "value")


class Number(int):
    """Any subclass of a user's."""


def test_subclasses_of_texts_and_numbers_are_written_as_such():
    """A callback that held one of NumPy's texts, such as `np.array(["low"])[0]`, kept snapshots from being written."""
    value = {np.str_("band"): [np.str_("low"), Number(7), np.float64(0.5)]}
    assert from_bytes(to_bytes(value, "state"), "state") == {"band": ["low", 7, 0.5]}


@pytest.mark.parametrize("value", [{"a": [1, object()]}, {"a": [1, b"x"]}, {"a": [1, {2}]}])
def test_other_types_are_refused_by_their_place(value: object):
    with pytest.raises(TypeError, match=r"state\['a'\]\[1\]"):
        to_bytes(value, "state")


def test_keys_that_are_no_strings_are_refused():
    with pytest.raises(TypeError, match="has the key 1"):
        to_bytes({1: "json would make it '1'"}, "state")
    with pytest.raises(ValueError, match="another name"):
        to_bytes({"$float": "inf"}, "state")


def test_a_value_that_holds_itself_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(ValueError, match="contains itself"):
        to_bytes(value, "state")


@given(st.binary())
def test_any_bytes_are_a_value_or_damage(data: bytes):
    with contextlib.suppress(DamagedSnapshotError):
        from_bytes(data, "it")
    with pytest.raises(DamagedSnapshotError):
        unsealed(data, "it")


@pytest.mark.parametrize("data", [b"[" * 100_000, b"1" * 10_000, b"NaN", b'{"$float": 3}', b'{"$float": []}', b"\xff"])
def test_hostile_texts_are_damage(data: bytes):
    with pytest.raises(DamagedSnapshotError):
        from_bytes(data, "it")


@given(st.dictionaries(KEYS, VALUES, max_size=3), st.data())
def test_a_seal_shows_every_flipped_bit(content: dict[str, object], data: st.DataObject):
    whole = sealed(to_bytes(content, "it"))
    assert from_bytes(unsealed(whole, "it"), "it") == content
    assert json.loads(whole).keys() == {*content, "sha256"}
    torn = bytearray(whole)
    torn[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedSnapshotError):
        unsealed(bytes(torn), "it")
    with pytest.raises(DamagedSnapshotError):
        unsealed(whole[: data.draw(st.integers(0, len(whole) - 1))], "it")
