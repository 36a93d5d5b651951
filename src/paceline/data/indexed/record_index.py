"""Where each record of a TFRecord file is, found by the lengths before them, once for each file.

    a record    length, 8 bytes | check sum of the length, 4 | data | check sum of the data, 4

(`tensorflow/core/lib/io/record_writer.h`.) The index takes 20 bytes a record, and stays in memory for as long as the
process lives. The check sums of the lengths are checked here, those of the data where these are read.
"""

import functools
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.indexed.record_sums import FOOTER_BYTES, HEADER_BYTES, masked

_COMPRESSED = {b"\x1f\x8b": "GZIP", b"\x78\x01": "ZLIB", b"\x78\x9c": "ZLIB", b"\x78\xda": "ZLIB"}
_SEARCHED_BYTES = 1 << 20


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
    compression: str
    """``"GZIP"`` or ``"ZLIB"``, where its first bytes are no record but say so."""


def compression_of(paths: Sequence[str]) -> str:
    """How files are compressed, as `TFRecordDataset` has it; empty: they are not.

    Raises:
        ValueError: a file is not there, or they are not all alike.
    """
    files = [file for file in map(index_of, paths) if file.num_bytes]
    for file in files:
        if file.compression != files[0].compression:
            kinds = [
                f"compressed ({one.compression})" if one.compression else "not compressed" for one in (files[0], file)
            ]
            raise ValueError(
                f"{files[0].path} is {kinds[0]}, and {file.path} is {kinds[1]}: give files that are all compressed in "
                "the same way, or none that is, as these are read in other ways [record-file]"
            )
    return files[0].compression if files else ""


def size_and_time(path: str) -> tuple[int, int]:
    """The bytes of a file, and when it was changed, in nanoseconds.

    Raises:
        ValueError: it cannot be read.
    """
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


def index_of(path: str) -> FileIndex:
    """That of a file, made at the first call, and again if the file has changed.

    Raises:
        ValueError: it cannot be read.
    """
    path = str(Path(path).absolute())
    known = _indexes.get(path)
    if known is None or size_and_time(path) != (known.num_bytes, known.changed_at):
        known = _indexes[path] = _indexed(path)
    return known


def _indexed(path: str) -> FileIndex:
    num_bytes, changed_at = size_and_time(path)
    with Path(path).open("rb", buffering=0) as file:
        first_bytes = os.pread(file.fileno(), 2, 0)
        starts, lengths, end, wrong = _records_from(file.fileno(), 0, num_bytes)
    damage = ""
    if wrong:
        hint = "" if starts else ". A file that begins so is usually no TFRecord file"
        damage = f"{path}, record {len(starts)} (from 0) at offset {end}: {wrong}{hint}"
    compression = _COMPRESSED.get(first_bytes, "") if wrong and not starts else ""
    offsets = np.array(starts, np.int64) + HEADER_BYTES
    return FileIndex(path, num_bytes, changed_at, offsets, lengths, damage, compression)


def _records_from(descriptor: int, at: int, num_bytes: int) -> tuple[list[int], npt.NDArray[np.int64], int, str]:
    """The records from a byte of a file on that are whole.

    Returns:
        The byte where each begins, their lengths, the byte behind them, and what is wrong with the record there; empty:
        the file ends there.
    """
    headers: list[bytes] = []
    starts: list[int] = []
    while at < num_bytes:
        headers.append(os.pread(descriptor, HEADER_BYTES, at))
        starts.append(at)
        if len(headers[-1]) < HEADER_BYTES:
            break
        at += HEADER_BYTES + int.from_bytes(headers[-1][:8], "little") + FOOTER_BYTES
    whole = [header for header in headers if len(header) == HEADER_BYTES]
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


def end_of(file: FileIndex) -> int:
    """The byte behind the last whole record."""
    return int(file.offsets[-1] + file.lengths[-1] + FOOTER_BYTES) if len(file.offsets) else 0


def num_left_out(file: FileIndex) -> int:
    """How many records are behind the whole ones: the damaged one, and those whose lengths are found again."""
    with Path(file.path).open("rb", buffering=0) as opened:
        for first in range(end_of(file) + 1, file.num_bytes, _SEARCHED_BYTES):
            data = np.frombuffer(os.pread(opened.fileno(), _SEARCHED_BYTES + HEADER_BYTES - 1, first), np.uint8)
            if len(data) < HEADER_BYTES:
                break
            windows = np.lib.stride_tricks.sliding_window_view(data, HEADER_BYTES)
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
    return masked(~sums)
