import keras
import numpy as np
import pytest

from paceline.fit.warmup import LearningRateWarmup

_STEPS = 4


class _Rates(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.of_steps: list[float] = []

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.of_steps.append(float(self.model.optimizer.learning_rate.numpy()))


def _rates(warmup: LearningRateWarmup, rate: object = 0.8, data: object = None, **fit: object) -> list[float]:
    rates = _Rates()
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    x = np.zeros((_STEPS, 1))
    arguments = {"epochs": 3, "batch_size": 1, **fit}
    if data is None:
        model.fit(x, x, verbose=0, callbacks=[warmup, rates], **arguments)
    else:
        model.fit(data(x), verbose=0, callbacks=[warmup, rates], epochs=arguments["epochs"])
    return rates.of_steps


def test_the_rate_rises_step_by_step_and_then_stays() -> None:
    rates = _rates(LearningRateWarmup(epochs=2, start=0.0))
    assert rates == pytest.approx([0.8 * min(1.0, step / (2 * _STEPS)) for step in range(3 * _STEPS)])


def test_a_resumed_run_goes_on_where_it_was() -> None:
    warmup = {"epochs": 2, "target": 0.8, "start": 0.2}
    assert _rates(LearningRateWarmup(**warmup), initial_epoch=1) == _rates(LearningRateWarmup(**warmup))[_STEPS:]


def test_after_the_warm_up_the_rate_is_left_to_others() -> None:
    class Halves(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            if epoch == 1:
                self.model.optimizer.learning_rate = 0.05

    rates, model = _Rates(), keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.8), "mse")
    x = np.zeros((_STEPS, 1))
    callbacks = [LearningRateWarmup(epochs=1, start=0.1), Halves(), rates]
    model.fit(x, x, epochs=3, batch_size=1, verbose=0, callbacks=callbacks)
    assert rates.of_steps[-_STEPS:] == pytest.approx([0.05] * _STEPS)


def test_data_of_unknown_length_stays_at_the_start_for_its_first_epoch() -> None:
    def generated(x: np.ndarray) -> object:
        import tensorflow as tf

        signature = (tf.TensorSpec((1, 1)), tf.TensorSpec((1, 1)))
        return tf.data.Dataset.from_generator(lambda: ((row[None], row[None]) for row in x), output_signature=signature)

    rates = _rates(LearningRateWarmup(epochs=2, start=0.0), data=generated)
    assert rates[:_STEPS] == [0.0] * _STEPS
    assert rates[_STEPS:] == pytest.approx(
        [0.8 * min(1.0, (_STEPS + step) / (2 * _STEPS)) for step in range(2 * _STEPS)]
    )


def test_a_schedule_cannot_be_warmed_up_from_outside() -> None:
    with pytest.raises(ValueError, match="schedule"):
        _rates(LearningRateWarmup(), rate=keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5))


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        LearningRateWarmup(epochs=0)
