"""TFRecord files by index: where each record is, found once by the lengths before them; and reading of single records.

    a record    length, 8 bytes | check sum of the length, 4 | data | check sum of the data, 4

(`tensorflow/core/lib/io/record_writer.h`.) The index takes 20 bytes a record, and stays in memory for as long as the
process lives. The check sums of the lengths are checked; those of the data are not, as this takes longer than reading.
"""

import functools
import logging
import os
import stat
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

_LOGGER = logging.getLogger("paceline")

OnError = Literal["raise", "skip"]

_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_COMPRESSED = {b"\x1f\x8b": "GZIP", b"\x78\x01": "ZLIB", b"\x78\x9c": "ZLIB", b"\x78\xda": "ZLIB"}
_OPEN_FILES = 256
"""More are opened for each reading."""
_BYTES_AT_ONCE = 8 << 20
"""Records that follow each other in a file are read together up to so many."""
_SEARCHED_BYTES = 1 << 20
_CALL_BYTES, _CALL_ROWS = 1 << 20, 1024
"""What is read by one call from Python, at most: as much as the cache of a core holds."""


@dataclass(frozen=True, slots=True)
class FileIndex:
    """What has been found in a file."""

    path: str
    num_bytes: int
    changed_at: int
    """Nanoseconds, as the file system says."""
    offsets: npt.NDArray[np.int64]
    """Of the data of each record."""
    lengths: npt.NDArray[np.int64]
    damage: str
    """What is wrong with the record behind the last one; empty: nothing."""


class RecordFiles:
    """The records of some files, in order.

    Args:
        paths: Of uncompressed TFRecord files.
        on_error: ``"skip"`` leaves out what is behind a damaged record in its file, and warns.

    Raises:
        ValueError: a file is damaged, compressed, or not there; the message has file, record and offset.
    """

    def __init__(self, paths: Sequence[str], on_error: OnError) -> None:
        self._files = [_index_of(path) for path in paths]
        damaged = [file for file in self._files if file.damage]
        if damaged and on_error == "raise":
            raise ValueError(_told(damaged))
        if damaged:
            left_out = sum(file.num_bytes - _end_of(file) for file in damaged)
            _LOGGER.warning(
                "%d of %d files are damaged. Of each, the first damaged record and all behind it are left out, at "
                "least %d records (%d bytes): %s",
                len(damaged),
                len(self._files),
                sum(map(_num_left_out, damaged)),
                left_out,
                "; ".join(file.damage for file in damaged),
            )
        self._first = np.cumsum([0, *(len(file.offsets) for file in self._files)])
        self._offsets = np.concatenate([file.offsets for file in self._files] or [np.zeros(0, np.int64)])
        self._lengths = np.concatenate([file.lengths for file in self._files] or [np.zeros(0, np.int64)])
        self._opened: dict[int, int] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._opened)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def rows_at_once(self) -> int:
        """How many records one call of `read` should be for: of large ones, it costs next to nothing."""
        mean_bytes = max(1, int(self._lengths.mean())) if len(self) else 1
        return min(_CALL_ROWS, _CALL_BYTES // mean_bytes)

    @property
    def facts(self) -> list[str]:
        """A line for each file, without the directory that all of them are in: each host may have its own."""
        common = os.path.commonpath([str(Path(file.path).parent) for file in self._files]) if self._files else ""
        return [
            f"{os.path.relpath(file.path, common)}: {file.num_bytes} bytes, {len(file.offsets)} records"
            for file in self._files
        ]

    def check_unchanged(self) -> None:
        """An epoch begins.

        Raises:
            ValueError: a file is not what it was when its index was made.
        """
        for file in self._files:
            if _size_and_time(file.path) != (file.num_bytes, file.changed_at):
                raise ValueError(
                    f"{file.path} has changed since its records were found. Files must not be written while a job "
                    "reads them: start the job again [record-file]"
                )

    def read(self, rows: npt.NDArray[np.int64]) -> list[bytes]:
        """The data of some records, by their numbers in all files. Those that follow each other are read together."""
        files = (np.searchsorted(self._first, rows, side="right") - 1).tolist()
        offsets, lengths = self._offsets[rows].tolist(), self._lengths[rows].tolist()
        found: list[bytes] = []
        at = 0
        while at < len(offsets):
            file, first, behind = files[at], offsets[at], at + 1
            end = first + lengths[at]
            while (
                behind < len(offsets)
                and files[behind] == file
                and offsets[behind] == end + _FOOTER_BYTES + _HEADER_BYTES
                and offsets[behind] + lengths[behind] - first <= _BYTES_AT_ONCE
            ):
                end = offsets[behind] + lengths[behind]
                behind += 1
            data = self._bytes(file, first, end - first)
            if len(data) < end - first:
                raise self._shortened(file, int(rows[at]), first, first + len(data), end)
            if behind == at + 1:
                found.append(data)
            else:
                starts = (offset - first for offset in offsets[at:behind])
                found += [
                    data[start : start + length] for start, length in zip(starts, lengths[at:behind], strict=True)
                ]
            at = behind
        return found

    def _shortened(self, file: int, row: int, offset: int, end_now: int, end: int) -> ValueError:
        return ValueError(
            f"{self._files[file].path}, at the record at offset {offset - _HEADER_BYTES} (number "
            f"{row - self._first[file]}, from 0): the file went on to byte {end} at least when it was indexed, and now "
            f"ends at byte {end_now}. Files must not be written while a job reads them: start the job again "
            "[record-file]"
        )

    def _bytes(self, file: int, offset: int, size: int) -> bytes:
        descriptor = self._opened.get(file)
        if descriptor is not None:
            return os.pread(descriptor, size, offset)
        descriptor = os.open(self._files[file].path, os.O_RDONLY | os.O_CLOEXEC)
        with self._lock:
            stays = len(self._opened) < _OPEN_FILES and self._opened.setdefault(file, descriptor) == descriptor
        try:
            return os.pread(descriptor, size, offset)
        finally:
            if not stays:
                os.close(descriptor)


def _close(opened: dict[int, int]) -> None:
    for descriptor in opened.values():
        os.close(descriptor)


def _told(damaged: Sequence[FileIndex]) -> str:
    lines = "\n  ".join(file.damage for file in damaged)
    told = f"{len(damaged)} of the TFRecord files cannot be read whole:\n  {lines}"
    if any(len(file.offsets) for file in damaged):
        told += '\nWrite them again, or read what is before the damage: paceline.data.records(…, on_error="skip")'
    return f"{told} [record-file]"


def _end_of(file: FileIndex) -> int:
    return int(file.offsets[-1] + file.lengths[-1] + _FOOTER_BYTES) if len(file.offsets) else 0


def _size_and_time(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError as fault:
        pattern = ". A pattern must be written out: sorted(glob.glob(pattern))" if set(path) & set("*?[") else ""
        raise ValueError(f"{path} cannot be read: {fault.strerror}{pattern} [record-file]") from fault
    if stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{path} is a directory: give the files in it, sorted [record-file]")
    return found.st_size, found.st_mtime_ns


_indexes: dict[str, FileIndex] = {}
"""Those made so far, by absolute path."""


def _index_of(path: str) -> FileIndex:
    path = str(Path(path).absolute())
    known = _indexes.get(path)
    if known is None or _size_and_time(path) != (known.num_bytes, known.changed_at):
        known = _indexes[path] = _indexed(path)
    return known


def _indexed(path: str) -> FileIndex:
    num_bytes, changed_at = _size_and_time(path)
    with Path(path).open("rb", buffering=0) as file:
        first_bytes = os.pread(file.fileno(), 2, 0)
        starts, lengths, end, wrong = _records_from(file.fileno(), 0, num_bytes)
    damage = ""
    if wrong and not starts and (kind := _COMPRESSED.get(first_bytes)):
        damage = (
            f"{path} is compressed ({kind}), and its records cannot be found by their offsets. Write it without "
            f'compression, or use tf.data.TFRecordDataset(files, "{kind}"), which every rank reads whole'
        )
    elif wrong:
        hint = "" if starts else ". A file that begins so is usually no TFRecord file"
        damage = f"{path}, record {len(starts)} (from 0) at offset {end}: {wrong}{hint}"
    return FileIndex(path, num_bytes, changed_at, np.array(starts, np.int64) + _HEADER_BYTES, lengths, damage)


def _records_from(descriptor: int, at: int, num_bytes: int) -> tuple[list[int], npt.NDArray[np.int64], int, str]:
    """The records from a byte of a file on that are whole.

    Returns:
        The byte where each begins, their lengths, the byte behind them, and what is wrong with the record there; empty:
        the file ends there.
    """
    headers: list[bytes] = []
    starts: list[int] = []
    while at < num_bytes:
        headers.append(os.pread(descriptor, _HEADER_BYTES, at))
        starts.append(at)
        if len(headers[-1]) < _HEADER_BYTES:
            break
        at += _HEADER_BYTES + int.from_bytes(headers[-1][:8], "little") + _FOOTER_BYTES
    whole = [header for header in headers if len(header) == _HEADER_BYTES]
    fields = np.frombuffer(b"".join(whole), np.dtype([("length", "<u8"), ("sum", "<u4")]))
    wrong = np.flatnonzero(_masked_check_sums(fields["length"]) != fields["sum"])
    number, damage = len(whole), ""
    if len(wrong):
        number, damage = int(wrong[0]), "the check sum of its length is wrong"
    elif len(whole) < len(headers) or at > num_bytes:
        number -= len(whole) == len(headers)
        damage = f"it ends behind the file, which has {num_bytes} bytes"
    lengths = fields["length"][:number].astype(np.int64)
    return starts[:number], lengths, starts[number] if damage else at, damage


def _num_left_out(file: FileIndex) -> int:
    """How many records are behind the whole ones: the damaged one, and those whose lengths are found again."""
    with Path(file.path).open("rb", buffering=0) as opened:
        for first in range(_end_of(file) + 1, file.num_bytes, _SEARCHED_BYTES):
            data = np.frombuffer(os.pread(opened.fileno(), _SEARCHED_BYTES + _HEADER_BYTES - 1, first), np.uint8)
            if len(data) < _HEADER_BYTES:
                break
            windows = np.lib.stride_tricks.sliding_window_view(data, _HEADER_BYTES)
            lengths, sums = windows[:, :8].copy().view("<u8")[:, 0], windows[:, 8:].copy().view("<u4")[:, 0]
            for at in np.flatnonzero(_masked_check_sums(lengths) == sums).tolist():
                starts, *_ = _records_from(opened.fileno(), first + at, file.num_bytes)
                if starts:
                    return 1 + len(starts)
    return 1


@functools.cache
def _table() -> npt.NDArray[np.uint32]:
    """Of CRC-32C, by byte (RFC 3720, appendix B.4: the polynomial 0x1EDC6F41, reflected)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


def _masked_check_sums(lengths: Any) -> Any:
    """Of the 8 bytes of each length, masked as `tensorflow/core/lib/hash/crc32c.h` does."""
    sums = np.full(len(lengths), 0xFFFFFFFF, np.uint32)
    for byte in np.ascontiguousarray(lengths).view(np.uint8).reshape(-1, 8).T:
        sums = _table()[(sums ^ byte) & 0xFF] ^ (sums >> np.uint32(8))
    sums = ~sums
    return (((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)).astype(np.uint32)
