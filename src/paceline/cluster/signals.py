"""The signals by which an agent talks to workers that cannot listen otherwise."""

import signal

STACKS_SIGNAL = signal.SIGQUIT
"""A worker writes the stacks of all its threads to stderr, even where the interpreter is stuck."""
