"""Python's garbage collector stays out of the way of large imports.

Importing Keras makes some 300,000 objects that live as long as the process. The collector looks through all that there
are again and again on the way, an eighth of the time, and through all of them once more whenever it looks at everything
later, as it does while steps are traced. So it pauses meanwhile, and is then told to leave those objects alone.
"""

import contextlib
import gc
from collections.abc import Iterator

from paceline.importing import around_import

_LARGE = ("tensorflow", "keras")


def spare_imports() -> None:
    """From now on the first import of TensorFlow, and that of Keras, is not collected. Imports neither."""
    for name in _LARGE:
        around_import(name, without_collections)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Pauses the collector, and sets aside what is there at the end; a script that has turned it off is left alone."""
    if not gc.isenabled():  # or inside such a block: Keras imports TensorFlow
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
