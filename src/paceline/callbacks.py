"""Callbacks for users: `paceline.callbacks.Snapshot`.

Importing this file loads neither TensorFlow nor Keras. It arranges for Paceline's seam with Keras: a `fit` that is
called with a `Snapshot` must be Paceline's by then.
"""

from typing import TYPE_CHECKING, Any

from paceline.seams.install import install_with_keras

if TYPE_CHECKING:
    from paceline.fit.snapshots.snapshot_callback import Snapshot as Snapshot

__all__ = ["Snapshot"]

install_with_keras()


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name != "Snapshot":
            raise AttributeError(f"module 'paceline.callbacks' has no attribute {name!r}; it has Snapshot")
        from paceline.fit.snapshots.snapshot_callback import Snapshot

        return Snapshot
