"""Asking something that cannot be interrupted (the system's resolver), for a limited time."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


def within(limit_seconds: float, ask: Callable[[], _Answer]) -> _Answer | None:
    """What `ask` returns, or None if that takes longer; `ask` must not raise, and goes on in a thread of its own."""
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(ask()), name="paceline-time-limit", daemon=True).start()
    try:
        return answers.get(timeout=limit_seconds)
    except queue.Empty:
        return None
