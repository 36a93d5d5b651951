"""Files that the script has left open: Python writes their buffers out at its end, and a worker leaves before that."""

import contextlib
import gc
import io


def flush_open_files() -> None:
    """Writes out the buffers of all files that are still open in this process."""
    for candidate in gc.get_objects():
        # By type: asking an arbitrary object for its class can run its code.
        if issubclass(type(candidate), io.IOBase):
            with contextlib.suppress(Exception):  # closed, not writable, or its reader is gone
                candidate.flush()
