"""`element_wise`: the script says that a map's function takes each row by itself."""

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "_paceline_element_wise"


def element_wise(function: Function) -> Function:
    """Says that `function`, which a `Dataset.map` calls, takes each row by itself.

        dataset = paths.map(paceline.data.element_wise(decode)).batch(64)
        model.fit(dataset, epochs=3)

    Behind the `batch` it says that the function has a row for each row: of some rows of a batch it returns those of
    what it returns for the batch.

    Each worker then calls the function for its own rows only. Without this, a function that calls Python
    (`tf.py_function`, `tf.numpy_function`) is called for all rows on every worker: it may count, or draw numbers.

    Args:
        function: Has no effects, and the same result for the same row, whichever rows were there before.

    Returns:
        The same function.
    """
    setattr(getattr(function, "__func__", function), _MARK, True)
    return function


def is_element_wise(function: Any) -> bool:
    """Whether the script has said so."""
    return bool(getattr(function, _MARK, False))
