import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.spec import Address
from paceline.rendezvous import messages, order
from paceline.rendezvous.facts import Facts

FACTS = Facts({"Keras": "3"}, seed=1, hostname="a")
MISSING = (messages.MissingRank(1, "a:1", "name not found"),)
EXAMPLES = [
    messages.Identity(1, "a", 42),
    messages.Join(1, 2, "digest", FACTS, 2.5, False),
    messages.Waiting(MISSING, 1, "", 3.0),
    messages.TimedOut(MISSING, 1, "note"),
    messages.Refused("why"),
    messages.Stands(7, "job", 1, ("a", "b")),
    messages.FenceIn({"k": "v"}),
    messages.FenceOut({}),
    messages.WorkerLost("died"),
    messages.Ended(1, "a:1", "a", "died"),
    messages.Leaving(),
    messages.Heartbeat(),
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


def test_every_message_has_an_example():
    assert {type(example) for example in EXAMPLES} == set(messages.Message.__args__)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_messages_survive_the_network(message):
    assert messages.decode(json.loads(json.dumps(messages.encode(message)))) == message


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_message_with_another_value_is_whole_or_a_value_error(message, data):
    fields = messages.encode(message)
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(values)
    with suppress(ValueError):
        assert isinstance(messages.decode(fields), messages.Message.__args__)


@pytest.mark.parametrize(
    "received",
    [
        {},
        {"type": 3},
        {"type": "Facts", "versions": {}, "seed": 1, "hostname": "a"},
        {"type": "Leaving", "extra": 1},
        {"type": "WorkerLost"},
        {"type": "Identity", "rank": True, "hostname": "a", "pid": 1},
        {"type": "FenceIn", "keys": {"a": 1}},
        {"type": "Stands", "seed": 1, "job_id": "j", "generation": 1, "hostnames": ["a", 2]},
    ],
)
def test_what_is_no_message(received):
    with pytest.raises(ValueError, match=r"."):
        messages.decode(received)


LINES = [
    order.Order(1, 0, (Address("a", 1), Address("::1", 2)), "digest", FACTS, 300.0, False, "00ff"),
    order.Granted(7, "job", 1, ("a", "b")),
    order.Denied(True, "why\nand how"),
    order.Left(),
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: type(line).__name__)
def test_lines_survive_the_socket(line):
    text = order.encode(line)
    assert text.count(b"\n") == 1
    assert order.decode(text) == line


@given(st.binary(max_size=60))
def test_any_line_is_one_of_these_or_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        order.decode(text)
