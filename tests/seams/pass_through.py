"""Makes the calls of `calls.py` without Paceline, and with all its replacements: prints what differs, as JSON.

    python pass_through.py TOLD.json            python pass_through.py TOLD.json with-originals

The second one also looks at which calls come to which original, and whether what that one raises arrives. Nothing is
trained under a strategy, and no job has been launched: each replacement must do what was there before it.
"""

import contextlib
import functools
import inspect
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from calls import CALLS

_ABSENT = object()
_TEXT = "raised by the original"


class Arrived(Exception):
    """What an original raises."""


def made(call: Callable[[], Any], *, afresh: bool = False) -> str:
    """What `call` computes, in a folder of its own, and what it prints.

    Args:
        call: One of `CALLS`.
        afresh: Whether Keras counts the names of its objects from 0, which takes longer.
    """
    if afresh:
        keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        found = call()
    return json.dumps([found, printed.getvalue()], default=str)


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def around(original: Any, act: Callable[[], None]) -> Any:
    """`original` after `act`."""
    if isinstance(original, property):
        return property(around(original.fget, act), doc=original.__doc__)
    if inspect.isclass(original):

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            act()
            original.__init__(self, *args, **kwargs)

        return type(original.__name__, (original,), {"__init__": __init__})

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        act()
        return original(*args, **kwargs)

    return function


def raises() -> None:
    raise Arrived(_TEXT)


def arrives(call: Callable[[], Any]) -> bool:
    """Whether `call` raises what an original raises."""
    error: BaseException | None = None
    try:
        made(call)
    except Exception as raised:
        error = raised
    # From a thread of TensorFlow's the text arrives, in an exception of its own.
    while error is not None and not isinstance(error, Arrived) and _TEXT not in str(error):
        error = error.__cause__ or error.__context__
    return error is not None


def looks_alike(original: Any, replacement: Any) -> list[str]:
    """In what a replacement looks otherwise than what it replaces."""
    if isinstance(original, property):
        return [] if isinstance(replacement, property) else ["is no property"]
    if inspect.isclass(original):
        return [] if issubclass(replacement, original) else ["is no subclass"]
    faults = [
        f"{name}: {getattr(replacement, name, None)!r}"
        for name in ("__name__", "__doc__")
        if getattr(original, name, None) != getattr(replacement, name, None)
    ]
    if inspect.unwrap(replacement) is not inspect.unwrap(original):
        faults.append("does not lead to the original by __wrapped__")
    if inspect.signature(replacement) != inspect.signature(original):
        faults.append(f"signature: {inspect.signature(replacement)}")
    return faults


def without_paceline() -> dict[str, str]:
    """What the calls compute where nothing is replaced."""
    assert "paceline" not in sys.modules
    return {name: made(call, afresh=True) for name, call in CALLS.items()}


def installed() -> list[tuple[Any, str, Any]]:
    """Puts the replacements of all kinds of processes into this one: each row, name and original."""
    from paceline.seams import table
    from paceline.seams.install import install_with_keras
    from paceline.strategy import nested_functions, operation_seeds, seams
    from paceline.strategy.first_use import LOOPS, PIPELINES, SERVERS

    of_several = table.rows(of_several=True)[len(table.rows(of_several=False)) :]
    rows = [*operation_seeds.rows(), *nested_functions.rows(), *table.all_rows()]
    found = [(row, name, inspect.unwrap(getattr(row.owner, name, None))) for row in rows for name in row.names]
    install_with_keras()
    for use in (SERVERS, PIPELINES, LOOPS):
        use.begin()
    nested_functions.install()
    seams.install(of_several)
    return found


def key_of(row: Any, name: str) -> str:
    return f"{row.where}.{name}"


def calls_that_reach(attributes: list[tuple[Any, str, Any]]) -> dict[str, list[str]]:
    """By attribute: the calls that come to it."""
    reached: dict[str, list[str]] = {}
    with contextlib.ExitStack() as recorded:
        for row, name, original in attributes:
            key = key_of(row, name)
            if key not in reached and original is not None:
                reached[key] = []
                noted = around(getattr(row.owner, name), functools.partial(reached[key].append, ""))
                recorded.enter_context(replaced(row.owner, name, noted))
        for call_name, call in CALLS.items():
            before = {key: len(names) for key, names in reached.items()}
            made(call)
            for key, names in reached.items():
                names[before[key] :] = [call_name] if len(names) > before[key] else []
    return reached


def main() -> None:
    plain = without_paceline()
    attributes = installed()
    from paceline.strategy import seams

    results, reached, looks, exceptions = {}, {}, {}, {}
    for name, call in CALLS.items():
        if (found := made(call, afresh=True)) != plain[name]:
            results[name] = [plain[name], found]
    if "with-originals" in sys.argv:
        reached = calls_that_reach(attributes)
    for row, name, original in attributes:
        if original is None:
            continue
        if faults := looks_alike(original, seams._replacement(row, original)):
            looks[key_of(row, name)] = faults
        calls = reached.get(key_of(row, name))
        if not calls:
            continue
        with replaced(row.owner, name, seams._replacement(row, around(original, raises))):
            if not any(arrives(CALLS[one]) for one in reversed(calls)):
                exceptions[key_of(row, name)] = row.why
    told = {"results": results, "looks": looks, "exceptions": exceptions, "reached": reached}
    Path(sys.argv[1]).write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
