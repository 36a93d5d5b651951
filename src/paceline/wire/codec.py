"""Typed records to JSON and back: the one codec for everything that leaves a process and comes back to one.

What arrives was written by another program, perhaps of another version, perhaps hostile: it becomes a whole, valid
value here, or a `GarbledError`. Nothing is unpickled, nothing is evaluated. How much is read at all, the reader limits
before (``frames.py``).
"""

import json
import sys
import threading
from typing import Any, Generic, TypeVar

# msgspec takes `typing_extensions` where it is installed, and does without: what it uses is in `typing` of every Python
# that Paceline supports. Its import would take a tenth of the start of an agent. Another thread might want it now.
_HIDDEN = "typing_extensions" if "msgspec" not in sys.modules and threading.active_count() == 1 else ""
if _HIDDEN and _HIDDEN not in sys.modules:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]
    try:
        import msgspec
    finally:
        del sys.modules[_HIDDEN]
else:
    import msgspec

Value = TypeVar("Value")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value with typed fields, checked where it is decoded.

    >>> class Point(Record, frozen=True):
    ...     x: int
    >>> encode(Point(3))
    b'{"x":3}'
    """


class TaggedRecord(Record, frozen=True, tag=True):
    """A record that says of which kind it is, so that a `Decoder` can take one of several.

    >>> class Over(TaggedRecord, frozen=True):
    ...     exit_code: int
    >>> encode(Over(1))
    b'{"type":"Over","exit_code":1}'
    """


class GarbledError(ValueError):
    """What came is not what was expected: damaged, foreign, too long, or of another version."""


def encode(value: object) -> bytes:
    """JSON without a line break. Bytes become base64."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # File names, arguments and variables that are not UTF-8 hold lone surrogates (PEP 383), which msgspec refuses.
        return json.dumps(msgspec.to_builtins(value)).encode()


class Decoder(Generic[Value]):
    """Reads what `encode` wrote.

    >>> Decoder[dict[str, int]](dict[str, int])(b'{"a":1}')
    {'a': 1}

    Args:
        expected: A type: of a record, a union of tagged records, or anything else that msgspec knows.
    """

    def __init__(self, expected: Any) -> None:
        self._expected = expected
        self._decoder = msgspec.json.Decoder[Value](expected)

    def __call__(self, data: bytes) -> Value:
        """The value in `data`.

        Raises:
            GarbledError: there is none, or one with a missing, unknown or wrong field. Nothing else is raised.
        """
        try:
            try:
                value: Value = self._decoder.decode(data)
            except msgspec.DecodeError:
                if b"\\ud" not in data:  # as `encode` writes lone surrogates
                    raise
                value = msgspec.convert(json.loads(data), self._expected)
        except RecursionError as fault:
            raise GarbledError("JSON nested too deeply") from fault
        except ValueError as fault:  # msgspec's own errors are, and those of text that is not UTF-8
            raise GarbledError(f"{fault}, received {data[:200]!r}") from fault
        return value
