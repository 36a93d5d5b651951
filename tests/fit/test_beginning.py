"""What a `fit` looks at before its first step; what it says is in `test_together.py`."""

from typing import Any

import keras
import pytest

from paceline.fit.beginning import losses_of_whole_batches


def _mean(y: Any, y_pred: Any) -> Any:
    return keras.ops.mean(y_pred - y)


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        (None, []),
        (_mean, []),
        (["mse", None], []),
        ("dice", ["dice"]),
        (keras.losses.dice, ["dice"]),
        (keras.losses.Dice(), ["Dice"]),
        (keras.losses.Dice(axis=(1, 2)), []),
        ({"one": keras.losses.Tversky(), "other": "circle"}, ["Tversky", "circle"]),
    ],
)
def test_losses_that_do_not_take_each_row_by_itself_are_found(loss: Any, names: list[str]) -> None:
    assert losses_of_whole_batches(loss) == names
