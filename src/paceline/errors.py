"""The errors that Paceline itself catches, and the exit codes that go with them.

A class exists here only because some code handles it by name: the command line and the bootstrap turn each into one
message without a traceback and the process's exit code. Everything else is an ordinary ``ValueError`` or
``RuntimeError``.
"""

EXIT_FAILED = 1
"""A worker ended with an uncaught exception; `paceline snapshot`: a snapshot is damaged, or there is none; `paceline
doctor`: a job could not run; `paceline status`: there is no such job."""

EXIT_USAGE = 2
"""The command is wrong, and nothing was started: an option has a wrong value, names a file or a folder that cannot be
used, or does not go with another one, wherever it was set (command line, variable, file); or a scheduler says too
little (the usual code of shell tools)."""

EXIT_UNAVAILABLE = 69
"""The workers could not connect, or the connection was lost: a worker or host did not start, is gone, ended early,
or hung; `paceline status`: a job does not answer (``EX_UNAVAILABLE`` of ``sysexits.h``)."""

EXIT_PREEMPTED = 75
"""The job was told to stop: run the same command again to continue from the newest snapshot (``EX_TEMPFAIL`` of
``sysexits.h``)."""

EXIT_CONFIGURATION = 78
"""The command is right, but a setting that it meets is not: TF_CONFIG, KERAS_BACKEND, a port, another host, or what the
script asks for (``EX_CONFIG`` of ``sysexits.h``)."""

EXIT_SIGNALLED = 128
"""A signal ended the job; N is the number of the signal, as in shells. 137: a worker was killed (9), for example by
the kernel when memory ran out; 139: a worker crashed (11); 143: a job without snapshots was told to stop (15)."""

EXIT_INTERRUPTED = 130
"""Ctrl-C."""


class ConfigurationError(ValueError):
    """A setting is wrong; the message names every fault, each with what was received, expected, and the fix."""


class StartError(RuntimeError):
    """The group did not form: the message names each missing rank, its address and the reason; or this rank's agent has
    ended.
    """


class DesynchronizedError(RuntimeError):
    """Ranks that should do the same did different things (another collective, other data); the job cannot go on."""


def exit_code_of(error: BaseException) -> int:
    """The process exit code for an uncaught `error`."""
    if isinstance(error, ConfigurationError):
        return EXIT_CONFIGURATION
    if isinstance(error, StartError):
        return EXIT_UNAVAILABLE
    return EXIT_FAILED
