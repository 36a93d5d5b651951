"""Work beside the event loop that may never end."""

import asyncio
import threading

import pytest

from paceline.launcher.event_loop import in_background


def test_what_it_gives_and_raises_arrives() -> None:
    async def both() -> int:
        with pytest.raises(ValueError, match="bad"):
            await in_background(lambda: int("bad"))
        return await in_background(lambda: 7)

    assert asyncio.run(both()) == 7


def test_what_never_ends_holds_up_nobody() -> None:
    """`asyncio.run` would join a thread of `asyncio.to_thread`, for ever."""
    for_ever = threading.Event()
    workers: list[threading.Thread] = []

    def block() -> None:
        workers.append(threading.current_thread())
        for_ever.wait()

    async def cancelled() -> None:
        work = in_background(block)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelled())
    for_ever.set()  # and what it says then is heard by nobody
    (worker,) = workers
    worker.join(60)
    assert not worker.is_alive()
