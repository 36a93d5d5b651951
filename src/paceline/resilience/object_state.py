"""Any Python value as JSON and arrays. What objects hold is found and put back by `attributes.py`.

No pickle: nothing runs when a snapshot is read, and what it cannot hold is refused by name. What JSON has no word for
is written as ``{"!": kind, ...}``; arrays go beside it, under their path.

    {"wait": 1, "best": [array, …]} ─► {"wait": 1, "best": [{"!": "array", "at": "…/best/0"}, …]}
"""

import contextlib
import math
import mmap
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Tensors = dict[str, Any]

_MAX_DEPTH = 32
MAX_SMALL_BYTES = 4 << 20
"""Up to this size a memory-mapped array is a value like any other."""
_PLAIN = frozenset({type(None), bool, str, int})
_MAX_ITEMS_IN_JSON = 64
"""More numbers, or strings, become an array: with Python's random generator a snapshot is written many times faster."""


class CannotHoldError(TypeError):
    """A snapshot has no words for this value; caught where a value may be left out."""


def encode(value: Any, tensors: Tensors, path: str = "", depth: int = 0) -> Any:
    """`value` as JSON; its arrays are added to `tensors`, not copied.

    Raises:
        CannotHoldError: with the path of the value.
    """
    if depth > _MAX_DEPTH:
        raise CannotHoldError(f"{path}: nested too deeply")
    if type(value) in _PLAIN or isinstance(value, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"!": "float", "is": repr(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        return _encode_array(value, tensors, path)
    if isinstance(value, Mapping):
        return _encode_mapping(value, tensors, path, depth)
    kind = _SEQUENCES.get(type(value))
    if kind is not None:
        items = _encode_items(value, tensors, path, depth)
        return items if kind == "list" else {"!": kind, "of": items, **_length_of(value)}
    generator = value.state if isinstance(value, GeneratorState) else state_of_generator(value)
    if generator is not None:
        return {"!": "generator", "state": encode(generator, tensors, path, depth + 1)}
    if isinstance(value, VariableValue) or is_variable(value):
        array = value.value if isinstance(value, VariableValue) else value.numpy()
        return {"!": "variable", "value": _encode_array(array, tensors, path)}
    raise CannotHoldError(f"{path}: a {type(value).__module__}.{type(value).__qualname__}")


_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque"}
_MAKERS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _encode_items(values: Any, tensors: Tensors, path: str, depth: int) -> Any:
    """As a list; many numbers of one type, and many strings, as an array."""
    if len(values) > _MAX_ITEMS_IN_JSON:
        if (array := _numbers(values)) is not None:
            tensors[path] = array
            return {"!": "numbers", "at": path}
        if set(map(type, values)) == {str}:
            tensors[path], tensors[f"{path}.lengths"] = _texts(values)
            return {"!": "strings", "at": path}
    return [
        item if type(item) in _PLAIN else encode(item, tensors, f"{path}/{index}", depth + 1)
        for index, item in enumerate(values)
    ]


def _numbers(values: Any) -> Any:
    """`values` as an array that gives them back with ``tolist``; None where it cannot."""
    types = set(map(type, values))
    if types == {float}:
        return np.array([*values], np.float64)
    if types == {int}:
        with contextlib.suppress(OverflowError):
            return np.array([*values], np.int64)
    return None


def _texts(values: Any) -> tuple[Any, Any]:
    """All the strings one after the other, and how many bytes each has."""
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    return np.frombuffer(b"".join(encoded), np.uint8), np.array([*map(len, encoded)], np.int64)


def _split(texts: Any, lengths: Any) -> list[str]:
    content, ends = texts.tobytes(), np.cumsum(lengths).tolist()
    return [content[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip([0, *ends], ends, strict=False)]


def _length_of(value: Any) -> dict[str, Any]:
    return {"longest": value.maxlen} if isinstance(value, deque) else {}


def _encode_array(value: Any, tensors: Tensors, path: str) -> Any:
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind in "US":
        if array.ndim or not isinstance(array.item(), str):
            raise CannotHoldError(f"{path}: an array of {array.dtype}")
        return array.item()
    tensors[path] = array
    return {"!": "array" if isinstance(value, np.ndarray) else "scalar", "at": path}


def _encode_mapping(value: Mapping[Any, Any], tensors: Tensors, path: str, depth: int) -> Any:
    # JSON files have their keys sorted; where another order may matter, it is kept.
    if all(isinstance(key, str) and key != "!" for key in value) and list(value) == sorted(value):
        return {key: encode(item, tensors, f"{path}/{key}", depth + 1) for key, item in value.items()}
    keys = _encode_items([*value.keys()], tensors, f"{path}.keys", depth)
    return {"!": "mapping", "keys": keys, "values": _encode_items([*value.values()], tensors, f"{path}.values", depth)}


def decode(value: Any, tensors: Mapping[str, Any]) -> Any:
    """What `encode` was given; generators and variables come as their state, see `attributes.put_into`."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get("!"):
        case None:
            return {key: decode(item, tensors) for key, item in value.items()}
        case "float":
            return float(value["is"])
        case "array" | "scalar" | "numbers" | "strings" as kind:
            return _read(kind, value["at"], tensors)
        case "mapping":
            return dict(zip(decode(value["keys"], tensors), decode(value["values"], tensors), strict=True))
        case "deque":
            return deque(decode(value["of"], tensors), value["longest"])
        case "generator":
            return GeneratorState(decode(value["state"], tensors))
        case "variable":
            return VariableValue(decode(value["value"], tensors))
        case kind:
            return _MAKERS[kind](decode(value["of"], tensors))


def _read(kind: str, at: str, tensors: Mapping[str, Any]) -> Any:
    match kind:
        case "array":
            return tensors[at]
        case "scalar":
            return tensors[at][()]
        case "numbers":
            return tensors[at].tolist()
        case _:
            return _split(tensors[at], tensors[f"{at}.lengths"])


class GeneratorState:
    """The state of a random generator of Python or NumPy."""

    def __init__(self, state: Any) -> None:
        self.state = state


class VariableValue:
    """The value of a Keras or TensorFlow variable."""

    def __init__(self, value: Any) -> None:
        self.value = value


def state_of_generator(value: Any) -> Any:
    """The state of one of Python's or NumPy's; None for anything else."""
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    return None


def is_variable(value: Any) -> bool:
    """Whether it is one of Keras's or TensorFlow's."""
    return hasattr(value, "assign") and hasattr(value, "numpy") and hasattr(value, "shape")


@dataclass(frozen=True, slots=True)
class Frozen:
    """A value as it was when it was encoded, whoever changes it: looked at once, held by many snapshots."""

    encoded: Any
    tensors: Mapping[str, Any]
    """Nobody changes them: they may be written without another copy."""

    @property
    def value(self) -> Any:
        """A copy of it."""
        return decode(self.encoded, {path: np.array(array) for path, array in self.tensors.items()})


def frozen(encoded: Any, tensors: Tensors) -> Frozen:
    """What `encode` has made, for later."""
    return Frozen(encoded, {path: np.array(array) for path, array in tensors.items()})


def mapped_part(value: Any) -> tuple[Any, ...] | None:
    """Which part of which file a large array shows; None for anything else. Nothing of the file is read."""
    if not isinstance(value, np.memmap) or value.nbytes <= MAX_SMALL_BYTES:
        return None
    root: Any = value
    while isinstance(root, np.ndarray):
        root = root.base
    if not isinstance(root, mmap.mmap):
        return None  # a copy of such an array is of its type, and lies in memory
    # A view has the offset of the whole; the address differs if the file is mapped again.
    begin = value.ctypes.data - np.frombuffer(root, np.uint8).ctypes.data
    return str(value.filename), value.offset, begin, value.shape, value.strides, str(value.dtype)
