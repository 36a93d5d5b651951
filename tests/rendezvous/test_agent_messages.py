import json
from contextlib import suppress
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.rendezvous import agent_messages
from paceline.rendezvous.agent_messages import Message, decode, encode

st.register_type_strategy(float, st.floats(allow_nan=False))  # which is not equal to itself
TYPES = get_args(Message)
MESSAGES = st.one_of([st.from_type(type_) for type_ in TYPES])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(MESSAGES)
def test_every_message_survives_the_line(message):
    assert decode(json.loads(json.dumps(encode(message)))) == message


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.__name__)
def test_every_kind_of_message_is_built_from_its_fields_alone(type_):
    """Fields whose types the wire cannot carry would be found only when the message is sent."""

    @given(st.from_type(type_))
    def survives(message):
        assert decode(json.loads(json.dumps(encode(message)))) == message

    survives()
    assert "type" not in get_type_hints(type_)  # would be lost: it is the message's name


@given(MESSAGES, st.data())
def test_a_message_with_another_value_is_whole_or_a_value_error(message, data):
    fields = encode(message)
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(values)
    with suppress(ValueError):
        assert isinstance(decode(fields), TYPES)


@pytest.mark.parametrize(
    "received",
    [
        {},
        {"type": 3},
        {"type": "Interface", "name": "a", "address": "b"},
        {"type": "Kill", "extra": 1},
        {"type": "Over"},
        {"type": "Over", "exit_code": True},
        {"type": "Terminate", "ranks": [0, "1"]},
        {"type": "Release", "keys": {"a": 1}},
        {"type": "Look", "hostname": "a", "pid": 1, "addresses": [["a", 1]], "key": ""},
    ],
)
def test_what_is_no_message(received):
    with pytest.raises(ValueError, match=r"."):
        agent_messages.decode(received)
