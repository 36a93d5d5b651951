"""No message of a conversation can be made up, changed, repeated, left out, reordered or sent back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.wire.frames import SEAL_BYTES, FrameSplitter, Seal, frame

KEY = b"session"


def ends() -> tuple[Seal, Seal]:
    return Seal(KEY, is_initiator=True), Seal(KEY, is_initiator=False)


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_what_is_sent_arrives(bodies):
    ours, theirs = ends()
    assert [theirs.open(ours.close(body)) for body in bodies] == bodies
    assert [ours.open(theirs.close(body)) for body in bodies] == bodies


@given(st.binary(max_size=50), st.data())
def test_a_changed_bit_is_noticed(body, data):
    ours, theirs = ends()
    sealed = bytearray(ours.close(body))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError, match="authentication code"):
        theirs.open(bytes(sealed))


def test_repeated_skipped_and_returned_messages_are_noticed():
    ours, theirs = ends()
    first, second = ours.close(b"a"), ours.close(b"b")
    with pytest.raises(ValueError, match="authentication code"):
        theirs.open(second)
    assert theirs.open(first) == b"a"
    with pytest.raises(ValueError, match="authentication code"):
        theirs.open(first)
    with pytest.raises(ValueError, match="authentication code"):
        ours.open(second)


@given(st.binary(max_size=SEAL_BYTES + 3))
def test_bytes_of_somebody_else_are_noticed(received):
    with pytest.raises(ValueError, match="authentication code"):
        ends()[1].open(received)


def test_frames_carry_seals():
    ours, theirs = ends()
    splitter = FrameSplitter()
    splitter.feed(frame({"hello": 1}))
    assert splitter.next_body() == b'{"hello":1}'
    splitter.expect(theirs)
    splitter.feed(frame({"a": 1}, ours) + frame({"b": 2}))
    assert splitter.next_body() == b'{"a":1}'
    with pytest.raises(ValueError, match="authentication code"):
        splitter.next_body()
