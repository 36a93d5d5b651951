"""What one rank puts into a snapshot, and the record of what was written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.store.checksum import ALGORITHM, is_checksum
from paceline.store.damage import DamagedSnapshotError
from paceline.store.fields import Fields

if TYPE_CHECKING:
    from paceline.store.tensors import Array

TENSORS_FILE = "tensors.safetensors"
STATE_FILE = "state.json"

_MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank puts into a snapshot.

        Part({"dense/kernel": kernel}, {"epoch": 3})

    Args:
        tensors: Arrays by any name.
        state: JSON (`json_bytes.to_bytes`).
    """

    tensors: "Mapping[str, Array]"
    state: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file as it was written; `name` is relative to its rank's folder."""

    name: str
    size_bytes: int
    checksum: str
    """See `checksum.py`."""


@dataclass(frozen=True, slots=True)
class PartRecord:
    """All files of one rank as they were written. Travels as JSON from the rank to the chief."""

    rank: int
    files: tuple[FileRecord, ...]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    def file(self, name: str) -> FileRecord:
        """The record of one file.

        Raises:
            KeyError: it is none of this part.
        """
        for file in self.files:
            if file.name == name:
                return file
        raise KeyError(name)

    def to_json(self) -> dict[str, object]:
        """This as JSON; `from_json` reads it."""
        files = [{"name": file.name, "size_bytes": file.size_bytes, ALGORITHM: file.checksum} for file in self.files]
        return {"rank": self.rank, "files": files}

    @staticmethod
    def from_json(value: object, what: str = "the record of a part") -> "PartRecord":
        """The record that `to_json` wrote.

        Raises:
            DamagedSnapshotError: `value` is none, or names a file outside of the snapshot.
        """
        return part_record(Fields(value, what))


def part_record(fields: Fields) -> PartRecord:
    """The record in `fields`; see `PartRecord.from_json`."""
    files = tuple(_file_record(file) for file in fields.objects("files"))
    names = [file.name for file in files]
    if len({*names}) < len(names) or not {TENSORS_FILE, STATE_FILE} <= {*names}:
        raise DamagedSnapshotError(
            f"a part has the files {names[:5]}; expected each once, tensors and state among them"
        )
    return PartRecord(fields.count("rank"), files)


def _file_record(fields: Fields) -> FileRecord:
    record = FileRecord(fields.text("name"), fields.count("size_bytes"), fields.text(ALGORITHM))
    if not is_file_name(record.name):
        raise DamagedSnapshotError(f"a file is called {record.name[:60]!a}; expected a relative name")
    if not is_checksum(record.checksum):
        raise DamagedSnapshotError(f"a checksum is {record.checksum[:70]!a}; expected 32 hexadecimal digits")
    return record


def rank_folder(rank: int) -> str:
    """Where in a snapshot the files of `rank` are."""
    return f"rank-{rank:05d}"


def is_file_name(name: str) -> bool:
    """Whether `name` is a relative name that stays below its folder, on every file system."""
    return name.isprintable() and "\\" not in name and all(_is_plain(piece) for piece in name.split("/"))


def _is_plain(piece: str) -> bool:
    # "surrogatepass": a lone surrogate has no encoding otherwise; it is not printable, so it is refused above.
    return bool(piece) and not piece.startswith(".") and len(piece.encode(errors="surrogatepass")) <= _MAX_NAME_BYTES
