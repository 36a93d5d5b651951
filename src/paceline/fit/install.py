"""Puts Paceline into Keras: once per process, after Keras was imported. Outside its strategies nothing changes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from paceline.cluster.keras_backend import check_keras_backend
from paceline.comm.world import current_world
from paceline.importing import after_import, around_import
from paceline.observe.frames import PACELINE

_installed = False


def install_with_keras() -> None:
    """Installs the seam now if Keras has been imported, else right after it will be."""
    around_import("keras", _on_tensorflow)
    after_import("keras", _install)


@contextmanager
def _on_tensorflow() -> Iterator[None]:
    """A backend that the script has set is refused in a sentence, before its import fails or takes seconds."""
    check_keras_backend(os.environ)
    yield


def _install(keras: ModuleType) -> None:
    global _installed
    if _installed:
        return
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"Paceline trains Keras on TensorFlow, but Keras was imported with the backend {backend!r}. "
            "Set KERAS_BACKEND=tensorflow before keras is imported. [keras-backend]"
        )
    _installed = True
    from paceline.fit import compat, seam_table
    from paceline.fit.replica_loops import seams as loop_seams
    from paceline.strategy import seams
    from paceline.strategy.replica_loops import before_first_loop

    compat.check(missing=seams.missing_names([*seam_table.rows(), *loop_seams.rows()]))
    compat.hide_frames_of(PACELINE)
    world = current_world()
    seams.install(seam_table.rows(of_several=world.launched and world.size > 1))
    before_first_loop(lambda: seams.install(loop_seams.rows()))
