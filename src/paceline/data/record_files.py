"""Reading of single records of TFRecord files, by their numbers; where each is says `record_index.py`."""

import logging
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.data.record_index import (
    FOOTER_BYTES,
    HEADER_BYTES,
    FileIndex,
    end_of,
    index_of,
    num_left_out,
    size_and_time,
)

_LOGGER = logging.getLogger("paceline")

OnError = Literal["raise", "skip"]

_OPEN_FILES = 256
"""More are opened for each reading."""
_BYTES_AT_ONCE = 8 << 20
"""Records that follow each other in a file are read together up to so many."""
_CALL_BYTES, _CALL_ROWS = 1 << 20, 1024
"""What is read by one call from Python, at most: as much as the cache of a core holds."""


class RecordFiles:
    """The records of some files, in order.

    Args:
        paths: Of uncompressed TFRecord files.
        on_error: ``"skip"`` leaves out what is behind a damaged record in its file, and warns.

    Raises:
        ValueError: a file is damaged, or not there; the message has file, record and offset.
    """

    def __init__(self, paths: Sequence[str], on_error: OnError) -> None:
        self._files = [index_of(path) for path in paths]
        damaged = [file for file in self._files if file.damage]
        if damaged and on_error == "raise":
            raise ValueError(_told(damaged))
        if damaged:
            left_out = sum(file.num_bytes - end_of(file) for file in damaged)
            _LOGGER.warning(
                "%d of %d files are damaged. Of each, the first damaged record and all behind it are left out, at "
                "least %d records (%d bytes): %s",
                len(damaged),
                len(self._files),
                sum(map(num_left_out, damaged)),
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
            if size_and_time(file.path) != (file.num_bytes, file.changed_at):
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
                and offsets[behind] == end + FOOTER_BYTES + HEADER_BYTES
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
            f"{self._files[file].path}, at the record at offset {offset - HEADER_BYTES} (number "
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
