"""Both ends prove that they know the job's key before anything else is believed. Pure: messages in, messages
out.

    initiator (dials)                            responder (listens)
      hello      {paceline, nonce}       ─────►
                                         ◄─────  challenge {paceline, nonce, proof as responder}
      proof      {proof as initiator}    ─────►
                                         ◄─────  Identity, and the conversation begins, each message under
                                                 a seal (sealing.py)

A proof is HMAC-SHA256 over the prover's role and both nonces. The role is inside, so a proof that is sent
back to its maker (reflection) proves nothing, and the nonces are fresh, so a recorded one proves nothing
either. An initiator that finds another key behind the responder's proof says so (`REJECTION`), so that both
sides can name "another job".
"""

import enum
import hashlib
import hmac
from collections.abc import Mapping

from paceline.rendezvous.sealing import Seal

PROTOCOL = 2
NONCE_BYTES = 32
MAX_HANDSHAKE_BYTES = 512
"""Longest frame that is read from a peer who has not proved anything yet."""

REJECTION: Mapping[str, object] = {"rejected": "key"}


class Stranger(enum.Enum):
    """Who it is that failed the handshake."""

    OTHER_PROGRAM = enum.auto()
    OTHER_JOB = enum.auto()
    OTHER_PROTOCOL = enum.auto()


class HandshakeError(Exception):
    """The peer is not of this job; `stranger` says what it is. Caught by whoever dialled or listened."""

    def __init__(self, stranger: Stranger) -> None:
        super().__init__(stranger.name)
        self.stranger = stranger


class Initiator:
    """The end that dialled.

    Args:
        key: The job's key.
        nonce: `NONCE_BYTES` fresh random bytes.
    """

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._key = key
        self._nonce = nonce
        self._session_key = b""

    def hello(self) -> dict[str, object]:
        """The first message."""
        return {"paceline": PROTOCOL, "nonce": self._nonce.hex()}

    def answer(self, challenge: Mapping[str, object]) -> dict[str, object]:
        """The proof to send in reply to the responder's `challenge`, which proves the responder to us.

        Raises:
            HandshakeError: it does not. Send `REJECTION` when that is because of another key.
        """
        peer_nonce = _nonce_of(challenge)
        if not _proves(challenge, _proof(self._key, "responder", self._nonce, peer_nonce)):
            raise HandshakeError(Stranger.OTHER_JOB)
        self._session_key = _session_key(self._key, self._nonce, peer_nonce)
        return {"proof": _proof(self._key, "initiator", self._nonce, peer_nonce)}

    def seal(self) -> Seal:
        """The seal of what follows; after `answer`."""
        assert self._session_key
        return Seal(self._session_key, is_initiator=True)


class Responder:
    """The end that listened. `challenge` first, then `check`.

    Args:
        key: The job's key.
        nonce: `NONCE_BYTES` fresh random bytes.
        hello: The initiator's first message.

    Raises:
        HandshakeError: `hello` is none of this protocol.
    """

    def __init__(self, key: bytes, nonce: bytes, hello: Mapping[str, object]) -> None:
        self._key = key
        self._nonce = nonce
        self._peer_nonce = _nonce_of(hello)

    def challenge(self) -> dict[str, object]:
        """The reply to the initiator's hello."""
        proof = _proof(self._key, "responder", self._peer_nonce, self._nonce)
        return {"paceline": PROTOCOL, "nonce": self._nonce.hex(), "proof": proof}

    def check(self, answer: Mapping[str, object]) -> None:
        """Believes the initiator.

        Raises:
            HandshakeError: its `answer` does not prove that it knows the key.
        """
        if not _proves(answer, _proof(self._key, "initiator", self._peer_nonce, self._nonce)):
            raise HandshakeError(Stranger.OTHER_JOB)

    def seal(self) -> Seal:
        """The seal of what follows; after `check`."""
        return Seal(_session_key(self._key, self._peer_nonce, self._nonce), is_initiator=False)


def _session_key(key: bytes, initiator_nonce: bytes, responder_nonce: bytes) -> bytes:
    context = f"paceline session {PROTOCOL}\0".encode()
    return hmac.new(key, context + initiator_nonce + responder_nonce, hashlib.sha256).digest()


def _proof(key: bytes, role: str, initiator_nonce: bytes, responder_nonce: bytes) -> str:
    context = f"paceline rendezvous {PROTOCOL} {role}\0".encode()
    return hmac.new(key, context + initiator_nonce + responder_nonce, hashlib.sha256).hexdigest()


def _proves(message: Mapping[str, object], expected: str) -> bool:
    received = message.get("proof", "")
    return isinstance(received, str) and hmac.compare_digest(received.encode(errors="replace"), expected.encode())


def _nonce_of(message: Mapping[str, object]) -> bytes:
    if "paceline" not in message:
        raise HandshakeError(Stranger.OTHER_PROGRAM)
    if message["paceline"] != PROTOCOL:
        raise HandshakeError(Stranger.OTHER_PROTOCOL)
    try:
        nonce = bytes.fromhex(str(message.get("nonce")))
    except ValueError as fault:
        raise HandshakeError(Stranger.OTHER_PROGRAM) from fault
    if len(nonce) != NONCE_BYTES:
        raise HandshakeError(Stranger.OTHER_PROGRAM)
    return nonce
