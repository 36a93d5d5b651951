"""``python -m paceline.bootstrap.function DIRECTORY``: what a worker of `paceline.launch` runs as its script.

The directory is this user's own, made by `paceline.launch` a moment ago: it holds the pickled call and where its
modules are found, and receives each rank's pickled result.
"""

import sys
from pathlib import Path

import cloudpickle

from paceline.launching import FUNCTION_FILE
from paceline.place import rank


def call(directory: Path) -> None:
    """Calls the function in `directory` and leaves its result there, complete or not at all."""
    sys.path[:], pickled_call = cloudpickle.loads((directory / FUNCTION_FILE).read_bytes())
    function, args, kwargs = cloudpickle.loads(pickled_call)
    result = cloudpickle.dumps(function(*args, **kwargs))
    unfinished = directory / f"unfinished_{rank()}"
    unfinished.write_bytes(result)
    unfinished.rename(directory / f"result_{rank()}.pkl")


if __name__ == "__main__":
    call(Path(sys.argv[1]))
