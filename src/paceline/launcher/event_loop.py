"""What the launcher adds to asyncio: signals as calls in the loop, and threads for work that may block for ever."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@contextmanager
def interrupts(loop: asyncio.AbstractEventLoop, receive: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Passes signals to `receive` while it lasts, in the main thread; then every handler is what it was.

    A signal that was being ignored stays ignored (``nohup``, or in the background of a shell script).
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number in _SIGNALS if before[number] != signal.SIG_IGN]
    for number in taken:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def may_read_stdin() -> bool:
    """Whether what this process reads from stdin is meant for it: not what is typed for a shell that runs it behind.

    The terminal stops a process in the background that reads; a worker leads a session of its own, and would take what
    the user types for somebody else.
    """
    try:
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # closed, or another session's terminal
        return False


Result = TypeVar("Result")


def in_background(work: Callable[[], Result]) -> "asyncio.Future[Result]":
    """What `work` returns or raises, such as access to a dead network disk; whoever cancels it leaves the thread to
    itself. Called in the event loop.

    `asyncio.to_thread` is not for that: neither the event loop nor the process ends before its threads do.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def give(result: Result) -> None:
        if not future.done():
            future.set_result(result)

    def fail(fault: Exception) -> None:
        if not future.done():
            future.set_exception(fault)

    def run() -> None:
        with contextlib.suppress(RuntimeError):  # of `call_soon_threadsafe`: the loop has ended meanwhile
            try:
                result = work()
            except Exception as fault:
                loop.call_soon_threadsafe(fail, fault)
            else:
                loop.call_soon_threadsafe(give, result)

    threading.Thread(target=run, name="paceline background", daemon=True).start()
    return future
