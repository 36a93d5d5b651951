"""Both ends prove that they know the job's key before anything else is believed. Pure: messages in, messages
out.

    initiator (dials)                            responder (listens)
      Hello      {version, nonce}        ─────►
                                         ◄─────  Challenge {version, nonce, proof as responder}
      Proof      {proof as initiator}    ─────►
                                         ◄─────  Identity, and the conversation begins, each message under
                                                 a seal (frames.py)

A proof is HMAC-SHA256 over the prover's role and both nonces. The role is inside, so a proof that is sent
back to its maker (reflection) proves nothing, and the nonces are fresh, so a recorded one proves nothing
either. An end that finds another key or another version of Paceline says so (`Rejected`), so that both sides can name
the cause.
"""

import enum
import hashlib
import hmac

import msgspec

from paceline.wire.codec import Decoder, GarbledError, TaggedRecord
from paceline.wire.frames import Seal
from paceline.wire.versions import VERSION

NONCE_BYTES = 32
MAX_HANDSHAKE_BYTES = 512
"""Longest frame that is read from a peer who has not proved anything yet."""


class Hello(TaggedRecord, frozen=True):
    """The initiator is here."""

    paceline: str
    nonce: bytes


class Challenge(TaggedRecord, frozen=True):
    """The responder's reply, which proves that it knows the key."""

    paceline: str
    nonce: bytes
    proof: bytes


class Proof(TaggedRecord, frozen=True):
    """The initiator knows the key, too."""

    proof: bytes


class Rejected(TaggedRecord, frozen=True):
    """The other end has another key, or is another version of Paceline."""

    paceline: str = VERSION


class Identity(TaggedRecord, frozen=True):
    """The process that answers at an address: the first message under a seal."""

    rank: int
    """The node's, or where workers were started by hand, the worker's."""
    hostname: str
    pid: int


class _OfAnyVersion(msgspec.Struct, frozen=True):
    """What every version of Paceline says first, whatever else it says."""

    paceline: str


class Stranger(enum.Enum):
    """Who it is that failed the handshake."""

    OTHER_PROGRAM = enum.auto()
    OTHER_JOB = enum.auto()
    OTHER_VERSION = enum.auto()


class HandshakeError(Exception):
    """The peer is not of this job; `stranger` says what it is, `version` which Paceline. Caught by whoever dialled or
    listened.
    """

    def __init__(self, stranger: Stranger, version: str = VERSION) -> None:
        super().__init__(stranger.name)
        self.stranger = stranger
        self.version = version[:40]


_first = Decoder[_OfAnyVersion](_OfAnyVersion)
_hello = Decoder[Hello](Hello)
_challenge = Decoder[Challenge | Rejected](Challenge | Rejected)
_answer = Decoder[Proof | Rejected](Proof | Rejected)
decode_identity = Decoder[Identity](Identity)


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

    def hello(self) -> Hello:
        """The first message."""
        return Hello(VERSION, self._nonce)

    def answer(self, body: bytes) -> Proof:
        """The proof to send in reply to the responder's `Challenge`, which proves the responder to us.

        Raises:
            HandshakeError: it does not. Send `Rejected` when that is because of another key.
        """
        _check_version(body)
        try:
            challenge = _challenge(body)
        except GarbledError as fault:
            raise HandshakeError(Stranger.OTHER_PROGRAM) from fault
        if not isinstance(challenge, Challenge) or len(challenge.nonce) != NONCE_BYTES:
            raise HandshakeError(Stranger.OTHER_PROGRAM)
        if not hmac.compare_digest(challenge.proof, _proof(self._key, "responder", self._nonce, challenge.nonce)):
            raise HandshakeError(Stranger.OTHER_JOB)
        self._session_key = _session_key(self._key, self._nonce, challenge.nonce)
        return Proof(_proof(self._key, "initiator", self._nonce, challenge.nonce))

    def seal(self) -> Seal:
        """The seal of what follows; after `answer`."""
        assert self._session_key
        return Seal(self._session_key, is_initiator=True)


class Responder:
    """The end that listened. `challenge` first, then `check`.

    Args:
        key: The job's key.
        nonce: `NONCE_BYTES` fresh random bytes.
        body: The initiator's first message.

    Raises:
        HandshakeError: it is none of this version of Paceline. Send `Rejected` to another version.
    """

    def __init__(self, key: bytes, nonce: bytes, body: bytes) -> None:
        self._key = key
        self._nonce = nonce
        _check_version(body)
        try:
            self._peer_nonce = _hello(body).nonce
        except GarbledError as fault:
            raise HandshakeError(Stranger.OTHER_PROGRAM) from fault
        if len(self._peer_nonce) != NONCE_BYTES:
            raise HandshakeError(Stranger.OTHER_PROGRAM)

    def challenge(self) -> Challenge:
        """The reply to the initiator's hello."""
        return Challenge(VERSION, self._nonce, _proof(self._key, "responder", self._peer_nonce, self._nonce))

    def check(self, body: bytes) -> None:
        """Believes the initiator.

        Raises:
            HandshakeError: its answer does not prove that it knows the key; `OTHER_JOB` if it says itself that it has
                another one.
        """
        try:
            answer = _answer(body)
        except GarbledError as fault:
            raise HandshakeError(Stranger.OTHER_PROGRAM) from fault
        if isinstance(answer, Rejected):
            raise HandshakeError(Stranger.OTHER_JOB)
        if not hmac.compare_digest(answer.proof, _proof(self._key, "initiator", self._peer_nonce, self._nonce)):
            raise HandshakeError(Stranger.OTHER_PROGRAM)

    def seal(self) -> Seal:
        """The seal of what follows; after `check`."""
        return Seal(_session_key(self._key, self._peer_nonce, self._nonce), is_initiator=False)


def _check_version(body: bytes) -> None:
    try:
        version = _first(body).paceline
    except GarbledError as fault:
        raise HandshakeError(Stranger.OTHER_PROGRAM) from fault
    if version != VERSION:
        raise HandshakeError(Stranger.OTHER_VERSION, version)


def _session_key(key: bytes, initiator_nonce: bytes, responder_nonce: bytes) -> bytes:
    context = f"paceline session {VERSION}\0".encode()
    return hmac.new(key, context + initiator_nonce + responder_nonce, hashlib.sha256).digest()


def _proof(key: bytes, role: str, initiator_nonce: bytes, responder_nonce: bytes) -> bytes:
    context = f"paceline rendezvous {VERSION} {role}\0".encode()
    return hmac.new(key, context + initiator_nonce + responder_nonce, hashlib.sha256).digest()
