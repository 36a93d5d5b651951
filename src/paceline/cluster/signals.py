"""The signals by which an agent talks to workers that cannot listen otherwise, and schedulers to all."""

import signal

STACKS_SIGNAL = signal.SIGQUIT
"""A worker writes the stacks of all its threads to stderr, even where the interpreter is stuck."""

PREEMPTION_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""What a scheduler sends to a job that must leave its place, with time to save its work."""
