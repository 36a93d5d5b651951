"""What tests of divided steps share."""

from collections.abc import Iterator

import keras
import pytest


@pytest.fixture
def in_double_precision() -> Iterator[None]:
    """Layers compute in float64, where a difference is no rounding."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])
