"""What a `fit` looks at before its first step; what it says is in `test_together.py`."""

from typing import Any

import keras
import pytest

from paceline.fit.beginning import layers_of_other_rows, losses_of_whole_batches


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


@pytest.mark.parametrize(
    ("rows", "batch_size", "names"),
    [
        pytest.param(4, 8, [], id="a replica's"),
        pytest.param(8, 8, ["alone", "ahead", "backward_ahead"], id="the global batch's"),
        pytest.param(4, 9, ["alone", "ahead", "backward_ahead"], id="another on each replica"),
        pytest.param(4, None, ["alone", "ahead", "backward_ahead"], id="unknown"),
    ],
)
def test_states_of_a_replicas_rows_are_let_through(rows: int, batch_size: int | None, names: list[str]) -> None:
    ahead = keras.layers.GRU(2, stateful=True, return_sequences=True, name="ahead")
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(rows, 2, 3)),
            keras.layers.Bidirectional(ahead),
            keras.layers.LSTM(4, stateful=True, name="alone"),
            keras.layers.Dense(1),
        ]
    )
    found = {name.removeprefix("forward_") for name in layers_of_other_rows(model, batch_size, size=2)}
    assert found == set(names)
