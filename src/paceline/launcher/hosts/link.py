"""The connection between the head and the agent of another host: messages, heartbeats, and its end.

carried by a TCP connection (each message under a seal) or by ssh's standard input and output
"""

import asyncio
from collections.abc import Callable, Iterable

from paceline.rendezvous.agent_messages import Heartbeat, Message, decode
from paceline.rendezvous.clocks import PeerClock
from paceline.rendezvous.connection import (
    HEARTBEAT_INTERVAL_SECONDS,
    SILENCE_LIMIT_SECONDS,
    Callback,
    Connection,
    finish_all,
)

OnMessage = Callable[[Message], None]
OnLost = Callable[[str], None]
"""Called once, with what completes the sentence "host a …", unless `close` ended the line."""


class Link:
    """One end of the line.

    Args:
        loop: The loop.
        connection: What carries the messages; owned from now on.
        last_words: Called with a beginning; that and what is known besides about the end of the line, or nothing.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        last_words: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._last_words = last_words
        self._on_message: OnMessage = _ignore
        self._on_lost: OnLost = _ignore
        self.clock = PeerClock()
        """How far the other end's clock is from this one's."""
        self.on_clock: Callable[[], None] = lambda: None
        """Called when a measurement of it is due."""
        self._open = True
        self._lost_because: str | None = None

    def start(self, on_message: OnMessage, on_lost: OnLost) -> None:
        """Begins to listen and to give signs of life."""
        self.attach(on_message, on_lost)
        self._connection.attach(decode, self._hear, self._lose)
        self._beat()

    def attach(self, on_message: OnMessage, on_lost: OnLost) -> None:
        """From the next message on, these are called; `on_lost` at once where the line is lost already."""
        self._on_message, self._on_lost = on_message, on_lost
        if self._lost_because is not None:  # between two stages of the conversation
            on_lost(self._lost_because)

    @property
    def is_open(self) -> bool:
        """Whether the other end may still hear."""
        return self._open

    @property
    def is_congested(self) -> bool:
        """Whether the other end takes less than is sent."""
        return self._connection.is_congested

    def call_at_relief(self, callback: Callback) -> None:
        """Calls `callback` once, when it is no longer congested."""
        self._connection.call_at_relief(callback)

    def send(self, message: Message) -> None:
        """Sends; on a line that has ended nothing happens."""
        if self._open:
            self._connection.send(message)

    def close(self) -> None:
        """Ends the line once what was sent has arrived, within a second. Blocks."""
        close_all([self])

    def show_life(self) -> None:
        """Gives a sign of life now, for an end whose event loop is held up: it cannot hear the other either."""
        if self._open:
            self._connection.heard_at = self._loop.time()
            self._connection.send(self.clock.heartbeat())

    def fail(self, reason: str) -> None:
        """Ends the line as if the other end were gone; `reason` completes the sentence "host a …"."""
        if self._open:
            self._connection.close()
            self._end(reason)

    def _beat(self) -> None:
        if not self._open:
            return
        if self._connection.is_silent():
            self.fail(f"is gone: no message from it for {SILENCE_LIMIT_SECONDS:g} s")
            return
        self._connection.send(self.clock.heartbeat())
        self._loop.call_later(HEARTBEAT_INTERVAL_SECONDS, self._beat)

    def _hear(self, message: Message) -> None:
        if isinstance(message, Heartbeat):
            self.clock.hear(message)
            if self.clock.is_due:
                self.on_clock()
        else:
            self._on_message(message)

    def _lose(self, reason: str) -> None:
        if self._open:
            self._end(f"is gone: {reason}{self._last_words('; its last output: ')}")

    def _end(self, reason: str) -> None:
        self._open = False
        self._lost_because = reason
        self._on_lost(reason)


def close_all(links: Iterable[Link]) -> None:
    """`Link.close` for several, within a second in all."""
    still_open = [link for link in links if link._open]
    for link in still_open:
        link._open = False
    finish_all([link._connection for link in still_open])


def _ignore(_: object) -> None:
    return
