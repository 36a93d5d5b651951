"""Any Python value as JSON and arrays, and the attributes of objects that know nothing of snapshots.

No pickle: nothing runs when a snapshot is read, and what it cannot hold is left out by name. What JSON has no word for
is written as ``{"!": kind, ...}``; arrays go beside it, under their path.

    capture(early_stopping) ─► {"wait": 1, "best": 0.31, "best_weights": [{"!": "array", "at": "…/best_weights/0"}, …]}

An object's own ``state_dict()`` / ``load_state_dict(state)``, or ``get_state()`` / ``set_state(state)``, comes first.
Without one, its attributes are taken as far as they are numbers, strings, lists, dictionaries, arrays, variables or
random generators.
"""

import contextlib
import math
import random
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

Tensors = dict[str, Any]

_HOOKS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))
_MAX_DEPTH = 32


_PLAIN = frozenset({type(None), bool, str, int})
_MAX_NUMBERS_IN_JSON = 64
"""More become an array: a snapshot with Python's random generator is taken and written many times faster so."""


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
    generator = value.state if isinstance(value, GeneratorState) else _state_of_generator(value)
    if generator is not None:
        return {"!": "generator", "state": encode(generator, tensors, path, depth + 1)}
    if isinstance(value, VariableValue) or _is_variable(value):
        array = value.value if isinstance(value, VariableValue) else value.numpy()
        return {"!": "variable", "value": _encode_array(array, tensors, path)}
    raise CannotHoldError(f"{path}: a {type(value).__module__}.{type(value).__qualname__}")


_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque"}
_MAKERS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _encode_items(values: Any, tensors: Tensors, path: str, depth: int) -> Any:
    """As a list; many numbers of one type as an array."""
    if len(values) > _MAX_NUMBERS_IN_JSON and (array := _numbers(values)) is not None:
        tensors[path] = array
        return {"!": "numbers", "at": path}
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
    """What `encode` was given; generators and variables come as their state, see `put_into`."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get("!"):
        case None:
            return {key: decode(item, tensors) for key, item in value.items()}
        case "float":
            return float(value["is"])
        case "array":
            return tensors[value["at"]]
        case "scalar":
            return tensors[value["at"]][()]
        case "numbers":
            return tensors[value["at"]].tolist()
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


class GeneratorState:
    """The state of a random generator of Python or NumPy."""

    def __init__(self, state: Any) -> None:
        self.state = state


class VariableValue:
    """The value of a Keras or TensorFlow variable."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _state_of_generator(value: Any) -> Any:
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    return None


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "numpy") and hasattr(value, "shape")


def put_into(old: Any, new: Any) -> Any:
    """What an attribute should hold, given it holds `old` and the snapshot says `new`.

    Containers, arrays and generators keep their identity: the script may hold them, too.
    """
    if isinstance(new, GeneratorState):
        _set_generator(old, new.state)
        return old
    if isinstance(new, VariableValue):
        old.assign(new.value)
        return old
    if type(old) is type(new) and type(new) in (list, deque):
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            new[index] = put_into(before, after)
        old.clear()
        old.extend(new)
        return old
    if type(old) is dict and type(new) is dict:
        merged = {key: put_into(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(merged)
        return old
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray) and old.flags.writeable:
        is_alike = old.shape == new.shape and old.dtype == new.dtype
        if is_alike:
            np.copyto(old, new)
        return old if is_alike else new
    return new


def _set_generator(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        raise TypeError(f"the snapshot has a random generator where the script has a {type(generator).__name__}")


def frozen(value: Any) -> Any:
    """A copy of `value` for later: what it is now, whoever changes it.

    Raises:
        CannotHoldError: with the path of what cannot be held.
    """
    tensors: Tensors = {}
    encoded = encode(value, tensors)
    return decode(encoded, {path: array.copy() for path, array in tensors.items()})


def capture(thing: Any, left_out: frozenset[str] = frozenset(), max_bytes: float = math.inf) -> dict[str, Any]:
    """The state of an object, as a value for `encode`: what its own hook says, else its attributes.

    Args:
        thing: The object.
        left_out: Attributes that are not its state.
        max_bytes: Attributes with larger arrays are left out.
    """
    captured = _of_hook(thing)
    if captured is not None:
        return captured
    attributes = {}
    for name, value in vars(thing).items() if hasattr(thing, "__dict__") else ():
        if name in left_out:
            continue
        tensors: Tensors = {}
        with contextlib.suppress(CannotHoldError):
            encode(value, tensors, name)
            if sum(array.nbytes for array in tensors.values()) <= max_bytes:
                attributes[name] = value
    return {"hook": None, "state": attributes}


def _of_hook(thing: Any) -> dict[str, Any] | None:
    for getter, setter in _HOOKS:
        if callable(getattr(thing, getter, None)) and callable(getattr(thing, setter, None)):
            return {"hook": getter, "state": getattr(thing, getter)()}
    return None


def encode_captured(thing: Any, tensors: Tensors, path: str, left_out: frozenset[str] = frozenset()) -> Any:
    """What `encode` makes of what `capture` finds; each value is looked at once, for a step waits meanwhile."""
    captured = _of_hook(thing)
    if captured is not None:
        return encode(captured, tensors, path)
    attributes = {}
    for name, value in sorted(vars(thing).items()) if hasattr(thing, "__dict__") else ():
        if name in left_out:
            continue
        own: Tensors = {}
        with contextlib.suppress(CannotHoldError):
            attributes[name] = encode(value, own, f"{path}/{name}")
            tensors.update(own)
    return {"hook": None, "state": attributes}


def restore(thing: Any, state: Mapping[str, Any]) -> None:
    """Puts `state`, decoded, back into an object like the one that `capture` was given."""
    for getter, setter in _HOOKS:
        if state["hook"] == getter:
            getattr(thing, setter)(state["state"])
            return
    for name, value in state["state"].items():
        setattr(thing, name, put_into(getattr(thing, name, None), value))
