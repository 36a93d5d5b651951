"""The entry point of the `paceline` command: what must stand before anything else is imported.

Signals end the command quietly from its first moment on, with the exit code that a shell knows: loading the verbs takes
some tenths of a second. Standard streams that are closed (``>&-``) become empty ones: what a job prints is lost then,
and no file or socket of the job gets their numbers.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from paceline.errors import EXIT_SIGNALLED

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name))
"""Windows, where files can be rendered, has not all of them."""


def main() -> None:
    """The entry point of the installed command."""
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or in the background of a shell script
            signal.signal(number, _end)
    _open_closed_streams()
    from paceline.cli.verbs import app

    app()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Until the launcher listens, and when it does no more; no handler runs while this one unwinds."""
    del frame
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(EXIT_SIGNALLED + number)


def _open_closed_streams() -> None:
    for descriptor, name, flags, mode in (
        (0, "stdin", os.O_RDONLY, "r"),
        (1, "stdout", os.O_WRONLY, "w"),
        (2, "stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, flags)  # the lowest free number, which is this one unless Python has taken it
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        os.set_inheritable(descriptor, True)
        setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115  # as long as the process
