"""Puts Paceline into Keras: once per process, after Keras was imported. Outside its strategies nothing changes."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from paceline.cluster.keras_backend import check_keras_backend
from paceline.comm.world import current_world
from paceline.importing import after_import, around_import
from paceline.observe.frames import PACELINE

if TYPE_CHECKING:
    from paceline.strategy.seams import Seam

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
    from paceline.fit import compat
    from paceline.fit.engine import register
    from paceline.seams import table
    from paceline.strategy import seams
    from paceline.strategy.first_use import LOOPS, PIPELINES, SERVERS

    compat.check(missing=seams.missing_names(table.all_rows()))
    compat.hide_frames_of(PACELINE)
    for engine in table.ENGINES:
        register(engine)
    world = current_world()
    seams.install(table.rows(of_several=world.launched and world.size > 1))
    for use, rows in ((SERVERS, table.of_servers), (PIPELINES, table.of_pipelines), (LOOPS, table.of_loops)):
        use.before(functools.partial(_install_rows, rows))


def _install_rows(rows: Callable[[], "list[Seam]"]) -> None:
    from paceline.strategy import seams

    seams.install(rows())
