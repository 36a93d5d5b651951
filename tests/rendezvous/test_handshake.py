import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.rendezvous.framing import frame
from paceline.rendezvous.handshake import (
    MAX_HANDSHAKE_BYTES,
    PROTOCOL,
    HandshakeError,
    Initiator,
    Responder,
    Stranger,
)

KEY = b"k" * 32
NONCE, OTHER_NONCE = b"a" * 32, b"b" * 32
anything = st.dictionaries(
    st.sampled_from(["paceline", "nonce", "proof", "rejected"]) | st.text(max_size=3),
    st.none() | st.booleans() | st.integers() | st.text() | st.just(NONCE.hex()) | st.lists(st.text()),
)


def test_two_that_know_the_key_believe_each_other():
    initiator = Initiator(KEY, NONCE)
    responder = Responder(KEY, OTHER_NONCE, initiator.hello())
    responder.check(initiator.answer(responder.challenge()))


def test_every_message_fits_what_strangers_are_allowed():
    initiator = Initiator(KEY, NONCE)
    challenge = Responder(KEY, OTHER_NONCE, initiator.hello()).challenge()
    for message in (initiator.hello(), challenge, initiator.answer(challenge)):
        assert len(frame(message)) < MAX_HANDSHAKE_BYTES


def test_another_key_is_another_job_to_both():
    initiator = Initiator(KEY, NONCE)
    responder = Responder(b"other", OTHER_NONCE, initiator.hello())
    with pytest.raises(HandshakeError) as to_initiator:
        initiator.answer(responder.challenge())
    assert to_initiator.value.stranger is Stranger.OTHER_JOB
    answer = Initiator(KEY, NONCE).answer(Responder(KEY, OTHER_NONCE, initiator.hello()).challenge())
    with pytest.raises(HandshakeError) as to_responder:
        responder.check(answer)
    assert to_responder.value.stranger is Stranger.OTHER_JOB


def test_a_responders_proof_sent_back_proves_nothing():
    responder = Responder(KEY, OTHER_NONCE, Initiator(KEY, NONCE).hello())
    with pytest.raises(HandshakeError):
        responder.check(responder.challenge())


def test_an_initiators_hello_sent_back_proves_nothing():
    initiator = Initiator(KEY, NONCE)
    with pytest.raises(HandshakeError):
        initiator.answer(initiator.hello())


def test_a_recorded_proof_proves_nothing_the_next_time():
    initiator = Initiator(KEY, NONCE)
    recorded = initiator.answer(Responder(KEY, OTHER_NONCE, initiator.hello()).challenge())
    with pytest.raises(HandshakeError):
        Responder(KEY, b"c" * 32, initiator.hello()).check(recorded)


@pytest.mark.parametrize(
    ("hello", "stranger"),
    [
        ({}, Stranger.OTHER_PROGRAM),
        ({"paceline": PROTOCOL}, Stranger.OTHER_PROGRAM),
        ({"paceline": PROTOCOL, "nonce": "00"}, Stranger.OTHER_PROGRAM),
        ({"paceline": PROTOCOL, "nonce": "zz"}, Stranger.OTHER_PROGRAM),
        ({"paceline": PROTOCOL + 1, "nonce": NONCE.hex()}, Stranger.OTHER_PROTOCOL),
    ],
)
def test_strangers_are_told_apart(hello, stranger):
    with pytest.raises(HandshakeError) as caught:
        Responder(KEY, NONCE, hello)
    assert caught.value.stranger is stranger


@given(anything)
def test_no_message_convinces_an_initiator_or_breaks_it(message):
    with pytest.raises(HandshakeError):
        Initiator(KEY, NONCE).answer(message)


@given(anything, anything)
def test_no_messages_convince_a_responder_or_break_it(hello, answer):
    with pytest.raises(HandshakeError):
        Responder(KEY, OTHER_NONCE, hello).check(answer)
