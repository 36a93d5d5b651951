"""The errors that Paceline itself catches, and the exit codes that go with them.

A class exists here only because some code handles it by name: the command line and the bootstrap turn each into one
message without a traceback and the process's exit code. Everything else is an ordinary ``ValueError`` or
``RuntimeError``.
"""

EXIT_USAGE = 2
"""The command line was not understood (the convention of every shell tool)."""

EXIT_UNAVAILABLE = 69
"""The group could not be formed: some worker never came (``EX_UNAVAILABLE`` of ``sysexits.h``)."""

EXIT_PREEMPTED = 75
"""The job was told to stop: the same command goes on from the newest snapshot (``EX_TEMPFAIL`` of ``sysexits.h``)."""

EXIT_CONFIGURATION = 78
"""TF_CONFIG or another setting is wrong (``EX_CONFIG`` of ``sysexits.h``)."""


class ConfigurationError(ValueError):
    """A setting is wrong; the message names every fault, each with what was received, expected, and the fix."""


class StartTimeoutError(RuntimeError):
    """The group did not form in time; the message names each missing rank, its address and the reason."""


class DesynchronizedError(RuntimeError):
    """Ranks that should do the same did different things (another collective, other data); the job cannot go on."""


def exit_code_of(error: BaseException) -> int:
    """The process exit code for an uncaught `error`."""
    if isinstance(error, ConfigurationError):
        return EXIT_CONFIGURATION
    if isinstance(error, StartTimeoutError):
        return EXIT_UNAVAILABLE
    return 1
