"""Prints the types of operations: `python -m tests.spmd.corpus [first|inputs|options] [CLASS …]`."""

import sys

from . import Extent, corpus, lines

_, *classes = sys.argv
extent = Extent[classes.pop(0).upper()] if classes and classes[0].upper() in Extent.__members__ else Extent.OPTIONS
print(*lines(corpus(*classes, extent=extent)), sep="\n")
