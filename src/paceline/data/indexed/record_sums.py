"""The check sums of records' data: CRC-32C, masked (`tensorflow/core/lib/hash/crc32c.h`), by Google's library in C."""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

HEADER_BYTES, FOOTER_BYTES = 12, 4
_DECOMPRESSED_BYTES = 1 << 20


def masked(sums: Any) -> Any:
    """As they are written beside what they are of; an array of uint32."""
    return (((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)).astype(np.uint32)


def damaged_of(data: Sequence[bytes], footers: bytes) -> npt.NDArray[np.intp]:
    """The numbers of those that differ from their check sums.

    Args:
        data: Of records.
        footers: The 4 bytes behind each, one after the other.
    """
    sums = np.fromiter(map(google_crc32c.value, data), np.uint32, len(data))
    return np.flatnonzero(masked(sums) != np.frombuffer(footers, "<u4"))


def damage_of_file(path: str, compression: str) -> str:
    """What is wrong with a file: which record, and its place (in what is decompressed); empty: nothing.

    Args:
        path: Of a file of TFRecords.
        compression: ``"GZIP"``, ``"ZLIB"``, or empty for none.
    """
    number, at, told = 0, 0, ""
    with Path(path).open("rb") as opened:
        stream = _decompressed(opened, compression)
        try:
            while header := stream.read(HEADER_BYTES):
                length = int.from_bytes(header[:8], "little")
                if len(header) < HEADER_BYTES or len(damaged_of([header[:8]], header[8:])):
                    told = "the check sum of its length is wrong, or the file ends in it"
                    break
                data, footer = stream.read(length), stream.read(FOOTER_BYTES)
                if len(data) < length or len(footer) < FOOTER_BYTES:
                    told = "the file ends in it"
                    break
                if len(damaged_of([data], footer)):
                    told = "the check sum of its data is wrong"
                    break
                number, at = number + 1, at + HEADER_BYTES + length + FOOTER_BYTES
        except (OSError, EOFError, zlib.error) as fault:
            told = f"the compressed bytes are damaged ({fault})"
    place = f"offset {at} of what is decompressed" if compression else f"offset {at}"
    return f"{path}, record {number} (from 0) at {place}: {told}" if told else ""


def _decompressed(file: BinaryIO, compression: str) -> Any:
    if compression == "GZIP":
        return gzip.GzipFile(fileobj=file)
    return _Decompressed(file) if compression else file


class _Decompressed:
    """What a ZLIB file holds, in sequence."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = zlib.decompressobj()
        self._held = b""

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end."""
        parts, missing = [self._held], size - len(self._held)
        while missing > 0 and (data := self._file.read(_DECOMPRESSED_BYTES)):
            parts.append(self._stream.decompress(data))
            missing -= len(parts[-1])
        held = b"".join(parts)
        self._held = held[size:]
        return held[:size]
