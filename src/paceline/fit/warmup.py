"""`LearningRateWarmup`: a gradual start for a learning rate that was scaled to a larger batch."""

from typing import Any

import keras

from paceline.ranks import world_size


class LearningRateWarmup(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Raises the learning rate linearly over the first epochs, step by step (Goyal et al., 2017, section 2.2).

        model.compile(keras.optimizers.SGD(paceline.scale_learning_rate(0.1)), "mse")
        model.fit(dataset, epochs=20, callbacks=[paceline.LearningRateWarmup(epochs=5)])

    The learning rate depends only on the number of the step, so a resumed run continues correctly. (Set `target` then:
    the learning rate that is restored with the optimizer may be one from the middle of the warm-up.) After the warm-up
    the callback does not change the learning rate.

    Args:
        epochs: How many epochs the warm-up takes, not necessarily a whole number.
        target: The learning rate at its end; the optimizer's when training begins, if None.
        start: The learning rate of the first step; ``target / world_size()`` if None: the one before scaling.
        steps_per_epoch: Only for data that does not know its length: without it the first epoch stays at `start`.

    Raises:
        ValueError: `epochs` is not positive; when training begins: the learning rate is a schedule.
    """

    same_on_all_ranks = True

    def __init__(
        self,
        epochs: float = 5,
        target: float | None = None,
        start: float | None = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if not epochs > 0:
            raise ValueError(f"epochs={epochs}: expected a positive number [argument]")
        self._epochs = epochs
        self._target = target
        self._start = start
        self._steps_per_epoch = steps_per_epoch
        self._epoch = 0
        self._steps_seen = 0
        self._is_over = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Notes the learning rate to end at."""
        del logs
        if not isinstance(self.model.optimizer.learning_rate, keras.Variable):
            raise ValueError(
                "LearningRateWarmup needs a learning rate that can be set, but the optimizer has a schedule. "
                "Use the warm-up of the schedule, e.g. keras.optimizers.schedules.CosineDecay(..., "
                "warmup_target=..., warmup_steps=...), or give the optimizer a number. [argument]"
            )
        if self._target is None:
            self._target = float(self.model.optimizer.learning_rate.numpy())
        if self._start is None:
            self._start = self._target / world_size()
        self._steps_per_epoch = self._steps_per_epoch or self.params.get("steps")
        self._is_over = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keeps the number of the epoch."""
        del logs
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the learning rate of the step."""
        del logs
        if self._is_over:
            return
        in_epoch = batch / self._steps_per_epoch if self._steps_per_epoch else 0.0
        self._is_over = self._epoch + in_epoch >= self._epochs
        self.model.optimizer.learning_rate = self.learning_rate_at(self._epoch + in_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts steps of data that does not know its length."""
        del logs
        self._steps_seen = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Knows from now on how many steps an epoch has."""
        del epoch, logs
        self._steps_per_epoch = self._steps_per_epoch or self._steps_seen

    def learning_rate_at(self, epochs: float) -> float:
        """The learning rate after so many epochs; once training has begun."""
        assert self._start is not None
        assert self._target is not None
        return self._start + (self._target - self._start) * min(1.0, epochs / self._epochs)
