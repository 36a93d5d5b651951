"""JSON of any shape, typed records, and the seal by which a changed byte of either is seen.

Three things are added to the codec for values that scripts bring: what JSON lacks is refused by its place in the
value, not by a type name alone; infinities and NaN, which callbacks hold before their first epoch, survive in standard
JSON; and whatever is wrong with a text read back is one `DamagedSnapshotError`.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import TypeVar

from paceline.store.folder import DamagedSnapshotError
from paceline.wire.codec import Decoder, GarbledError, encode

_FLOAT = "$float"
"""The only key of an object that stands for a float which JSON has no number for: ``{"$float": "inf"}``."""

_SEALED = re.compile(rb'\{"sha256":"([0-9a-f]{64})",?(.*\})\n', re.DOTALL)

Value = TypeVar("Value")
_any = Decoder[object](object)


def to_bytes(value: object, what: str) -> bytes:
    """The JSON text of `value`, the same for equal values; tuples come back as lists.

    Args:
        value: Of ``None``, bools, integers, floats, strings, lists, tuples and mappings with string keys.
        what: What it is, for messages.

    Raises:
        TypeError: it holds something else; names the place.
        ValueError: it is nested too deeply, or holds itself.
    """
    return encode(with_standard_floats(value, what))


def from_bytes(data: bytes, what: str) -> object:
    """The value of a text that `to_bytes` wrote.

    Raises:
        DamagedSnapshotError: it is no JSON. Nothing else is raised.
    """
    return with_all_floats(read(_any, data, what), what)


def read(decoder: Decoder[Value], data: bytes, what: str) -> Value:
    """The record in `data`.

    Raises:
        DamagedSnapshotError: there is none.
    """
    try:
        return decoder(data)
    except GarbledError as error:
        raise DamagedSnapshotError(f"{what} cannot be read ({error})") from error


def sealed(body: bytes) -> bytes:
    """The JSON object `body` with its checksum as its first field, and a line break."""
    checksum = hashlib.sha256(body).hexdigest().encode()
    return b'{"sha256":"%s"%s%s\n' % (checksum, b"" if body == b"{}" else b",", body[1:])


def unsealed(data: bytes, what: str) -> bytes:
    """The body that `sealed` was given.

    Raises:
        DamagedSnapshotError: any byte is another one than was written.
    """
    match = _SEALED.fullmatch(data)
    body = b"{" + match[2] if match else b""
    if sealed(body) != data:
        raise DamagedSnapshotError(f"{what} does not match its own checksum")
    return body


def with_standard_floats(value: object, what: str) -> object:
    """`value` as JSON can write it; see `to_bytes`."""
    try:
        return _plain(value, what)
    except RecursionError as error:
        raise ValueError(f"{what} is nested too deeply for JSON, or contains itself") from error


def with_all_floats(value: object, what: str) -> object:
    """What `with_standard_floats` was given.

    Raises:
        DamagedSnapshotError: it is none of that.
    """
    try:
        return _restored(value)
    except (ValueError, RecursionError) as error:
        raise DamagedSnapshotError(f"{what} cannot be read ({error})") from error


def _plain(value: object, place: str) -> object:
    if isinstance(value, Mapping):
        items = {_key(key, place): _plain(item, f"{place}[{key!r}]") for key, item in value.items()}
        return dict(sorted(items.items()))
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: str(float(value))}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)  # of subclasses too, such as NumPy's, which the codec refuses
    raise TypeError(
        f"{place} is a {type(value).__module__}.{type(value).__qualname__}; expected JSON: None, bool, int, float, "
        "str, list, tuple, or a mapping with string keys. Make it one of these (a NumPy number: .item()); arrays "
        "belong to the tensors"
    )


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{place} has the key {key!r} ({type(key).__name__}); expected strings as keys")
    if key == _FLOAT:
        raise ValueError(f"{place} has the key {_FLOAT!r}, which stands for infinities here; give it another name")
    return str.__str__(key)


def _restored(value: object) -> object:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {_FLOAT}:
        return {key: _restored(item) for key, item in value.items()}
    if value[_FLOAT] not in ("inf", "-inf", "nan"):
        raise ValueError(f"{_FLOAT} is {value[_FLOAT]!r}; expected inf, -inf or nan")
    return float(value[_FLOAT])
