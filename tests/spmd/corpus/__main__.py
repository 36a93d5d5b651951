"""Prints the types of operations: `python -m tests.spmd.corpus [--plain] [CLASS …]`; plain is without options."""

import sys

from . import corpus, lines

made = corpus(*(item for item in sys.argv[1:] if item != "--plain"), options="--plain" not in sys.argv)
print(*lines(made), sep="\n")
