"""`paceline.callbacks.Snapshot`: a callback that takes snapshots without ``--snapshot-dir``."""

import os
from typing import Any

import keras

from paceline.fit.snapshots.resumable_fit import DEFAULT_KEEP, is_in_fit
from paceline.resilience.schedule import Schedule
from paceline.store.retention import parse_retention


class Snapshot(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Takes snapshots while `fit` runs. When the script runs again, it resumes from the newest one, also in mid-epoch.

        from paceline.callbacks import Snapshot     # at the top of the script

        model.fit(dataset, epochs=9, callbacks=[Snapshot("snapshots/run-7", every_steps=100)])

    Same as ``paceline run --snapshot-dir``, for this `fit` only. ``docs/snapshots.md`` says what they contain. Without
    a launcher, set a seed in the script (``keras.utils.set_random_seed(1)``).

    Args:
        directory: On a file system that all hosts share, or an object store's URL; for this job alone.
        every_steps: Steps between snapshots.
        every_seconds: Seconds between snapshots; with neither, 60.
        keep: How many are kept, or policies, such as ``"2,best:3:val_loss"`` (``docs/snapshots.md``).

    Raises:
        ValueError: an interval is not positive, or `keep` is none of the policies.
        RuntimeError: Paceline was imported only inside the call of `fit`, which is too late.
    """

    same_on_all_ranks = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int | str = DEFAULT_KEEP,
    ) -> None:
        super().__init__()
        parse_retention(keep)
        if every_steps is None and every_seconds is None:
            every_seconds = 60.0
        self.paceline_snapshots: Any = (os.fspath(directory), Schedule(every_steps, every_seconds), keep)
        """What `fit` looks for in its callbacks."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuses a `fit` that nobody protects."""
        del logs
        if not is_in_fit():
            raise RuntimeError(
                "this fit takes no snapshots, because Paceline was imported only after fit was called. Put "
                "`from paceline.callbacks import Snapshot` at the top of the script. [imported-too-late]"
            )
