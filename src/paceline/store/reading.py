"""Reading a snapshot back: every byte is checked against the manifest before anybody uses it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from paceline.store.folder import DamagedSnapshotError, Fault, Folder, unreadable
from paceline.store.json_bytes import from_bytes, read
from paceline.store.manifest import SnapshotInfo
from paceline.store.shards import STATE_FILE, TENSORS_FILE, Count, FileRecord, ShardRecord, new_checksum, rank_folder
from paceline.wire.codec import Decoder

if TYPE_CHECKING:
    from paceline.store.tensors import Array

_CHUNK_BYTES = 4 << 20
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


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[Count, ...]
    data_offsets: tuple[Count, Count]


_entries = Decoder[dict[str, msgspec.Raw]](dict[str, msgspec.Raw])
_entry = Decoder[_Entry](_Entry)


class SnapshotReader:
    """The contents of one snapshot.

        reader = store.open(info)
        reader.state(rank), reader.tensors(rank)

    Each method raises `DamagedSnapshotError` if what is there is not what was written, ``ValueError`` if the snapshot
    has no shard of that rank, and ``OSError`` if it cannot be read.

    Args:
        folder: Where it is.
        info: Which it is.
    """

    def __init__(self, folder: Folder, info: SnapshotInfo) -> None:
        self._folder = folder
        self.info = info

    def state(self, rank: int) -> dict[str, object]:
        """The JSON of a rank's shard."""
        what = f"{STATE_FILE} of rank {rank}"
        value = from_bytes(self._contents(rank, STATE_FILE), what)
        if not isinstance(value, dict):
            raise DamagedSnapshotError(f"{what} is no object")
        return value

    def tensors(self, rank: int) -> "dict[str, Array]":
        """The arrays of a rank's shard, in writable memory of their own."""
        from paceline.store import tensors  # NumPy, which the command line does not need

        return tensors.from_bytes(self._contents(rank, TENSORS_FILE), f"{TENSORS_FILE} of rank {rank}")

    def headers(self, rank: int) -> dict[str, TensorHeader]:
        """Names, types and shapes of a rank's arrays; only the file's beginning is read, and nothing checked."""
        self._check_size(rank, self._record(rank).file(TENSORS_FILE))
        with self._opened(self._path(rank, TENSORS_FILE)) as file:
            return read_headers(file, f"{TENSORS_FILE} of rank {rank}")

    def paths(self, rank: int) -> dict[str, str]:
        """What the variables are called whose values are arrays, by the arrays' names.

        That stands in the state of a shard, wherever it describes variables: ``[path, shape, name of the array]``.
        """
        names = self.headers(rank).keys()
        return {name: path for path, name in _described(self.state(rank)) if name in names}

    def verify(self, rank: int, progress: Callable[[int], None]) -> tuple[Fault, ...]:
        """Reads all files of a shard; what is wrong with them.

        Args:
            rank: Whose.
            progress: Told how many bytes more have been read.
        """
        faults = []
        for record in self._record(rank).files:
            try:
                self._stream(rank, record, lambda chunk: progress(len(chunk)))
            except DamagedSnapshotError as error:
                faults.append(Fault(str(error)))
            except OSError as error:
                faults.append(unreadable(self._path(rank, record.name), error))
        return tuple(faults)

    def size_faults(self) -> tuple[Fault, ...]:
        """What is missing or has another size than the manifest says; reads no file."""
        faults = []
        for shard in self.info.shards:
            for record in shard.files:
                try:
                    self._check_size(shard.rank, record)
                except DamagedSnapshotError as error:
                    faults.append(Fault(str(error)))
        return tuple(faults)

    def _contents(self, rank: int, name: str) -> bytes:
        record = self._record(rank).file(name)
        chunks: list[bytes] = []
        try:
            # In one piece: for large files, each copy takes as long as the reading.
            self._stream(rank, record, chunks.append, max(record.size_bytes, 1))
            return b"".join(chunks)
        except MemoryError as error:
            raise DamagedSnapshotError(f"{self._path(rank, name)} does not fit in memory") from error

    def _stream(
        self, rank: int, record: FileRecord, use: Callable[[bytes], object], chunk_bytes: int = _CHUNK_BYTES
    ) -> None:
        """Gives a file to `use` in pieces. Raises at its end: what was used before is not to be trusted then."""
        path = self._path(rank, record.name)
        self._check_size(rank, record)
        checksum, left_bytes = new_checksum(), record.size_bytes
        with self._opened(path) as file:
            while left_bytes and (chunk := file.read(min(left_bytes, chunk_bytes))):
                checksum.update(chunk)
                left_bytes -= len(chunk)
                use(chunk)
        if left_bytes:
            raise DamagedSnapshotError(f"{path} ended {left_bytes} bytes early")
        if checksum.hexdigest() != record.checksum:
            raise DamagedSnapshotError(f"{path} does not match its checksum")

    def _opened(self, path: str) -> BinaryIO:
        try:
            return self._folder.reader(path)
        except FileNotFoundError as error:  # somebody has deleted the snapshot since it was found
            raise DamagedSnapshotError(f"{path} is missing") from error

    def _check_size(self, rank: int, record: FileRecord) -> None:
        path = self._path(rank, record.name)
        try:
            size_bytes = self._folder.size_bytes(path)
        except FileNotFoundError as error:
            raise DamagedSnapshotError(f"{path} is missing") from error
        if size_bytes != record.size_bytes:
            raise DamagedSnapshotError(f"{path} has {size_bytes} bytes, {record.size_bytes} were written")

    def _record(self, rank: int) -> ShardRecord:
        if not 0 <= rank < len(self.info.shards):
            raise ValueError(f"received rank {rank}; expected 0 to {len(self.info.shards) - 1} ({self.info.name})")
        return self.info.shards[rank]

    def _path(self, rank: int, name: str) -> str:
        return f"{self.info.name}/{rank_folder(rank)}/{name}"


def _described(value: object) -> Iterator[tuple[str, str]]:
    match value:
        case [str() as path, [*_], str() as name]:
            yield path, name
        case dict() | list():
            for item in value.values() if isinstance(value, dict) else value:
                yield from _described(item)


def read_headers(file: BinaryIO, what: str) -> dict[str, TensorHeader]:
    """The tensors of the safetensors `file`, by name, in the file's order.

    Raises:
        DamagedSnapshotError: it is none.
    """
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > _MAX_HEADER_BYTES:
        raise DamagedSnapshotError(f"{what}: its header has {length} bytes; expected at most {_MAX_HEADER_BYTES}")
    entries = read(_entries, file.read(length), f"the header of {what}")
    entries.pop(_METADATA, None)
    return {name: _header(read(_entry, bytes(entry), f"{what}: {name[:60]!a}")) for name, entry in entries.items()}


def _header(entry: _Entry) -> TensorHeader:
    begin, end = entry.data_offsets
    if begin > end:
        raise DamagedSnapshotError(f"a tensor lies at {entry.data_offsets}; expected its begin and its end")
    return TensorHeader(entry.dtype, entry.shape, end - begin)
