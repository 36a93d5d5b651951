"""The data of the next epoch, which a `fit` begins to read while the epoch before ends, or is validated.

Only where a shuffle has to fill its buffer anew (`data/early_readings.py`). For snapshots, callbacks and the script the
next epoch has not begun.

    epoch 1   [steps  ……………………|────────]  validation, callbacks   epoch 2 [steps
    data                       └ the buffer of epoch 2 is filled from here on
"""

import inspect
import threading
from collections.abc import Callable
from typing import Any

from paceline.data.early_readings import Buffers, EarlyReading, buffers_of
from paceline.data.fingerprint import FingerprintLog
from paceline.data.local_batches import read_ahead
from paceline.data.worker_memory import resident_bytes

Function = Callable[..., Any]

_FEWEST_EPOCHS = 2


class _Fit:
    """A call of `fit`."""

    def __init__(self, model: Any, arguments: dict[str, Any]) -> None:
        self.model = model
        self._first_epoch = arguments.get("initial_epoch", 0)
        self._end_epoch = arguments.get("epochs", 1)
        self.bytes_before = _first_size()
        self.epochs: EarlyEpochs | None = None
        """Of its training data, if those of the next epoch can be read early."""
        self.has_data = False

    @property
    def num_epochs(self) -> int:
        """At most so many begin."""
        return int(self._end_epoch - (self.model._initial_epoch or self._first_epoch))


class _Here(threading.local):
    """What this thread is in the middle of."""

    fit: _Fit | None = None
    bytes_before: int | None = None


_here = _Here()


def _first_size() -> int:
    if _here.bytes_before is None:
        _here.bytes_before = resident_bytes()
    return _here.bytes_before


def with_early_epochs(keras_fit: Function) -> Function:
    """Keras's `fit`, of which nothing that was read early is left when it has ended."""
    signature = inspect.signature(keras_fit)

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, _here.fit = _here.fit, _Fit(self, signature.bind(self, *args, **kwargs).arguments)
        try:
            return keras_fit(self, *args, **kwargs)
        finally:
            if (epochs := _here.fit.epochs) is not None:
                epochs.end()
            _here.fit = before

    return fit


class NoEarlyEpochs:
    """Stands in where no iterator is made early."""

    def iterable(self, dataset: Any) -> Any:
        """As it is."""
        return dataset

    def begin_epoch(self) -> None:
        """An epoch begins."""

    def begin_step(self, num_taken: int, num_batches: int | None, *, is_known: bool) -> None:
        """A step is about to take batches."""

    def end_steps(self) -> None:
        """An epoch has no more steps."""


class EarlyEpochs(NoEarlyEpochs):
    """Makes the iterators of the epochs of a `fit`, some of them early.

    Args:
        fit: The call.
        dataset: Of this rank's batches.
        buffers: Its shuffles.
        log: Of fingerprints, if they are compared.
    """

    def __init__(self, fit: _Fit, dataset: Any, buffers: Buffers, log: FingerprintLog | None) -> None:
        self._fit = fit
        self._log = log
        self._buffers = buffers
        self._reading = EarlyReading(dataset, buffers, fit.bytes_before)
        self._num_begun = 0
        self._is_wanted = True

    def iterable(self, dataset: Any) -> Any:
        """`dataset`, whose next iterator may have been made."""
        return _MadeEarly(self, dataset)

    def begin_epoch(self) -> None:
        """An epoch begins."""
        self._num_begun += 1

    def begin_step(self, num_taken: int, num_batches: int | None, *, is_known: bool) -> None:
        """A step is about to take batches.

        Args:
            num_taken: Batches of the epoch, with those of the step.
            num_batches: All batches of the epoch; None: not known yet.
            is_known: Whether the dataset says how many, before it has been read.
        """
        if num_batches is None or self._buffers.has_cache:
            return
        # The last rows are in the buffer that is drained: as many steps before, but not in the first half of the epoch.
        if num_taken > num_batches - min(2 * self._buffers.batches, -(-num_batches // 2)):
            self._begin(num_unread=1 if is_known else 0)  # at the end of such an epoch Keras makes one that it drops

    def end_steps(self) -> None:
        """An epoch has no more steps."""
        self._begin(num_unread=0)

    def end(self) -> None:
        """The `fit` has ended."""
        self._is_wanted = False
        self._reading.drop()

    def make(self, dataset: Any) -> Any:
        """The next iterator."""
        if not self._reading.num_made:
            return iter(dataset)
        if (iterator := self._reading.take()) is None:  # and it would be so in the next epochs
            self._is_wanted = False
        if self._log is not None and not self._reading.num_made:
            (self._log.drop_early if iterator is None else self._log.take_early)()
        return iter(dataset) if iterator is None else iterator

    def _begin(self, num_unread: int) -> None:
        is_last = self._num_begun >= self._fit.num_epochs or self._fit.model.stop_training
        if is_last or not self._is_wanted or self._reading.num_made:
            return
        if self._log is not None:
            self._log.begin_early()
        if not self._reading.begin(num_unread):
            self._is_wanted = False
            if self._log is not None:
                self._log.drop_early()


class _MadeEarly:
    def __init__(self, epochs: EarlyEpochs, dataset: Any) -> None:
        self._epochs = epochs
        self._dataset = dataset

    def __iter__(self) -> Any:
        return self._epochs.make(self._dataset)


def fit_without_data() -> _Fit | None:
    """The `fit` that asks for its training data, which is the first that Keras does; None: the data are for others."""
    fit = _here.fit
    if fit is None or fit.has_data:
        return None
    fit.has_data = True
    return fit


def early_epochs(fit: _Fit | None, script: Any, local: Any, log: FingerprintLog | None) -> tuple[Any, NoEarlyEpochs]:
    """The dataset of this rank's batches, which may read ahead now, and who makes iterators over it.

    Args:
        fit: From `fit_without_data`.
        script: The dataset as the script has made it.
        local: That of this rank's batches of it.
        log: Of fingerprints, if they are compared.
    """
    buffers = None if fit is None or fit.num_epochs < _FEWEST_EPOCHS else buffers_of(script, local)
    if fit is None or buffers is None:
        return local, NoEarlyEpochs()
    local = read_ahead(local)
    fit.epochs = EarlyEpochs(fit, local, buffers, log)
    return local, fit.epochs
