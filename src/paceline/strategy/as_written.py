"""Keeping AutoGraph away from Paceline's own functions.

When a user's `tf.function` calls one of them, AutoGraph would rewrite it and everything that it calls: slower tracing,
tracebacks into generated files, and each step's collective through AutoGraph's dispatcher. TensorFlow and Keras are
exempt from that by name; this is the public way for everybody else.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def as_written(function: _Function) -> _Function:
    """`function`, which runs as it is written, in graphs, too."""
    unconverted: _Function = tf.autograph.experimental.do_not_convert(function)
    return unconverted
