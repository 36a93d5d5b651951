"""The header of a safetensors file: which tensors it holds. Needs no NumPy.

The file is eight bytes (the header's length, little-endian), the header (JSON), and the tensors' bytes.
"""

from dataclasses import dataclass
from typing import BinaryIO

from paceline.store.damage import DamagedSnapshotError
from paceline.store.fields import Fields
from paceline.store.json_bytes import from_bytes

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor: its type by the format's name (``F32``), its shape, its size."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


def read_headers(file: BinaryIO, what: str) -> dict[str, TensorHeader]:
    """The tensors of the safetensors `file`, by name, in the file's order.

    Raises:
        DamagedSnapshotError: it is none.
    """
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > _MAX_HEADER_BYTES:
        raise DamagedSnapshotError(f"{what}: its header has {length} bytes; expected at most {_MAX_HEADER_BYTES}")
    header = from_bytes(file.read(length), f"the header of {what}")
    if not isinstance(header, dict):
        raise DamagedSnapshotError(f"the header of {what} is no JSON object")
    return {
        name: _header(Fields(value, f"{what}: {name[:60]!a}")) for name, value in header.items() if name != _METADATA
    }


def _header(fields: Fields) -> TensorHeader:
    shape = tuple(fields.counts("shape"))
    offsets = fields.counts("data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise DamagedSnapshotError(f"a tensor lies at {offsets[:5]}; expected its begin and its end")
    return TensorHeader(fields.text("dtype"), shape, offsets[1] - offsets[0])
