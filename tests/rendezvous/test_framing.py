from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.rendezvous.framing import MAX_FRAME_BYTES, FrameSplitter, LineSplitter, frame

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
messages = st.dictionaries(st.text(), json_values, max_size=4)


def chunks(stream: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


@given(st.lists(messages, max_size=4), st.lists(st.integers(0, 10_000), max_size=8))
def test_messages_survive_any_cutting(sent, cuts):
    splitter = FrameSplitter()
    received = []
    for chunk in chunks(b"".join(map(frame, sent)), cuts):
        splitter.feed(chunk)
        while (message := splitter.next_object()) is not None:
            received.append(message)
    assert received == sent


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_value_error(data):
    splitter = FrameSplitter()
    splitter.feed(data)
    with suppress(ValueError):
        while (message := splitter.next_object(200)) is not None:
            assert isinstance(message, dict)


@given(st.binary(max_size=200))
def test_any_body_is_a_message_or_a_value_error(body):
    splitter = FrameSplitter()
    splitter.feed(len(body).to_bytes(4) + body)
    with suppress(ValueError):
        assert isinstance(splitter.next_object(), dict)


@pytest.mark.parametrize(
    "body",
    [b"[]", b"1", b"{", b"\xff", b'{"a":NaN}', b'{"a":' + b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}"],
)
def test_bodies_that_are_no_message(body):
    splitter = FrameSplitter()
    splitter.feed(len(body).to_bytes(4) + body)
    with pytest.raises(ValueError, match=r"."):
        splitter.next_object()


def test_a_length_beyond_the_limit_is_refused_before_its_body_arrives():
    splitter = FrameSplitter()
    splitter.feed((513).to_bytes(4))
    with pytest.raises(ValueError, match="513 bytes was announced, at most 512"):
        splitter.next_object(512)


def test_a_message_too_long_to_send():
    with pytest.raises(ValueError, match="longer than"):
        frame({"a": "x" * MAX_FRAME_BYTES})


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.lists(st.integers(0, 500)))
def test_lines_survive_any_cutting(sent, cuts):
    splitter = LineSplitter(20)
    stream = b"".join(line + b"\n" for line in sent)
    assert [line for chunk in chunks(stream, cuts) for line in splitter.feed(chunk)] == sent


def test_a_line_without_end_is_refused():
    splitter = LineSplitter(10)
    splitter.feed(b"x" * 10)
    with pytest.raises(ValueError, match="longer than 10"):
        splitter.feed(b"x")
