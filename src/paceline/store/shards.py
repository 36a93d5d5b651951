"""What one rank puts into a snapshot, and the record of what was written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import xxhash

from paceline.wire.codec import Decoder, Record

if TYPE_CHECKING:
    from paceline.store.tensors import Array

TENSORS_FILE = "tensors.safetensors"
STATE_FILE = "state.json"

_MAX_NAME_BYTES = 255

_ALGORITHM = "xxh128"
"""Its name in manifests, and that of the tool that computes it by hand, less its ``sum``."""


def new_checksum() -> "xxhash.xxh3_128":
    """A checksum of nothing, to be updated with bytes and read with ``hexdigest``. Other threads run meanwhile.

    It tells a file from one that a disk, a network or a death has changed. It is not meant against people: who can
    write files can write the manifest that names their checksums.
    """
    return xxhash.xxh3_128()


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank puts into a snapshot.

        Shard({"dense/kernel": kernel}, {"epoch": 3})

    Args:
        tensors: Arrays by any name.
        state: JSON (`json_bytes.to_bytes`).
    """

    tensors: "Mapping[str, Array]"
    state: Mapping[str, object]


Count = Annotated[int, msgspec.Meta(ge=0)]


class FileRecord(Record, frozen=True):
    """One file as it was written; `name` is relative to its rank's folder."""

    name: str
    size_bytes: Count
    checksum: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")] = msgspec.field(name=_ALGORITHM)
    """As `new_checksum` writes it."""

    def __post_init__(self) -> None:
        if not is_file_name(self.name):
            raise ValueError(f"a file is called {self.name[:60]!a}; expected a relative name")


class ShardRecord(Record, frozen=True):
    """All files of one rank as they were written. Travels as JSON from the rank to the chief."""

    rank: Count
    files: tuple[FileRecord, ...]

    def __post_init__(self) -> None:
        names = [file.name for file in self.files]
        if len({*names}) < len(names) or not {TENSORS_FILE, STATE_FILE} <= {*names}:
            raise ValueError(f"a shard has the files {names[:5]}; expected each once, tensors and state among them")

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    def file(self, name: str) -> FileRecord:
        """The record of one file.

        Raises:
            KeyError: it is none of this shard.
        """
        for file in self.files:
            if file.name == name:
                return file
        raise KeyError(name)


decode_shard = Decoder[ShardRecord](ShardRecord)


def rank_folder(rank: int) -> str:
    """Where in a snapshot the files of `rank` are."""
    return f"rank-{rank:05d}"


def is_file_name(name: str) -> bool:
    """Whether `name` is a relative name that stays below its folder, on every file system."""
    return name.isprintable() and "\\" not in name and all(_is_plain(piece) for piece in name.split("/"))


def _is_plain(piece: str) -> bool:
    # "surrogatepass": a lone surrogate has no encoding otherwise; it is not printable, so it is refused above.
    return bool(piece) and not piece.startswith(".") and len(piece.encode(errors="surrogatepass")) <= _MAX_NAME_BYTES
