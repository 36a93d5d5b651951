"""Arrays as the bytes of a safetensors file and back. The one file of the store that knows NumPy.

The format holds numbers only: nothing in it is code, and nothing runs when it is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from paceline.store.folder import DamagedSnapshotError
from paceline.wire.codec import encode

Array: TypeAlias = NDArray[Any]
Buffer: TypeAlias = bytes | memoryview

_NUMPY_NAMES = {
    "BOOL": "bool",
    **{
        f"{letter}{bits}": f"{name}{bits}" for letter, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)
    },
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "C64": "complex64",
}
_ML_NAMES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
"""Types that TensorFlow brings along (the package ``ml_dtypes``) and NumPy alone does not know."""

_FORMAT_NAMES = {name: short for short, name in (_NUMPY_NAMES | _ML_NAMES).items()}

_ALIGNMENT_BYTES = 8


def to_chunks(tensors: Mapping[str, Array]) -> Iterator[Buffer]:
    """A safetensors file of `tensors`, piece by piece: any memory order, any number of dimensions, also empty ones.

    The arrays are not copied, unless they lie in memory in another order. The library's own writer puts the whole file
    together first, with the interpreter's lock held: training would stand still meanwhile (measured: 50 ms for 33 MB).

    Raises:
        TypeError: some cannot be stored; names each. Nothing has been given out then.
    """
    wrong = [f"{name!r}: {_kind(tensor)}" for name, tensor in tensors.items() if _kind(tensor) not in _FORMAT_NAMES]
    if wrong:
        raise TypeError(
            f"tensors: received {', '.join(wrong)}; expected arrays of {', '.join(sorted(_FORMAT_NAMES))}. "
            "Text can be stored as UTF-8: numpy.frombuffer(text.encode(), 'uint8')"
        )
    # Large elements first: so each array lies at a multiple of its element's size, for readers that map the file.
    in_order = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    return _chunks(in_order)


def _chunks(tensors: Sequence[tuple[str, Array]]) -> Iterator[Buffer]:
    header: dict[str, object] = {}
    begin = 0
    for name, tensor in tensors:
        end = begin + tensor.nbytes
        header[name] = {
            "dtype": _FORMAT_NAMES[tensor.dtype.name],
            "shape": [*tensor.shape],
            "data_offsets": [begin, end],
        }
        begin = end
    text = encode(header)
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    yield len(text).to_bytes(_ALIGNMENT_BYTES, "little") + text
    for _, tensor in tensors:
        yield _packed(tensor).reshape(-1).view("uint8").data


def from_bytes(data: bytes, what: str) -> dict[str, Array]:
    """The arrays of a file that `to_chunks` made, each in writable memory of its own.

    Raises:
        DamagedSnapshotError: `data` is none.
    """
    try:
        return {
            name: numpy.frombuffer(view["data"], _dtype(view["dtype"], what)).reshape(view["shape"])
            for name, view in deserialize(data)  # type: ignore[no-untyped-call]
        }
    except (SafetensorError, ValueError) as error:
        raise DamagedSnapshotError(f"{what} is no safetensors file ({error})") from error


def _kind(tensor: object) -> str:
    if not isinstance(tensor, numpy.ndarray | numpy.generic):
        return type(tensor).__name__
    return tensor.dtype.name


def _packed(tensor: Array) -> Array:
    little_endian = tensor.dtype.newbyteorder("<") if tensor.dtype.name in _NUMPY_NAMES.values() else tensor.dtype
    return numpy.asarray(tensor, dtype=little_endian, order="C")


def _dtype(name: str, what: str) -> "numpy.dtype[Any]":
    if name in _NUMPY_NAMES:
        return numpy.dtype(_NUMPY_NAMES[name]).newbyteorder("<")
    if name in _ML_NAMES:
        import ml_dtypes  # not needed for snapshots without such tensors

        found: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, _ML_NAMES[name]))
        return found
    raise DamagedSnapshotError(f"{what} has a tensor of type {name[:30]!a}; expected {[*_NUMPY_NAMES, *_ML_NAMES]}")
