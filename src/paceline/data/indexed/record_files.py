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

from paceline.data.indexed.record_index import FileIndex, end_of, index_of, num_left_out, size_and_time
from paceline.data.indexed.record_sums import FOOTER_BYTES, HEADER_BYTES, damaged_of

_LOGGER = logging.getLogger("paceline")

OnError = Literal["raise", "skip"]
CheckSums = Literal["once", "always", "never"]

_OPEN_FILES = 256
"""More are opened for each reading."""
_BYTES_AT_ONCE = 8 << 20
"""Records that follow each other in a file are read together up to so many."""
_SHOWN_RECORDS = 5
_CALL_BYTES, _CALL_ROWS = 1 << 20, 1024
"""What is read by one call from Python, at most: as much as the cache of a core holds."""

_NONE = np.zeros(0, np.intp)


class RecordFiles:
    """The records of some files, in order.

    Args:
        paths: Of uncompressed TFRecord files.
        on_error: ``"skip"`` leaves out records whose data are damaged, of which it looks at all now, and what is behind
            a damaged length in its file; and warns.
        check_sums: Of data that are read: when a record is first read, always, or never.

    Raises:
        ValueError: a file is damaged, or not there; the message has file, record and offset.
    """

    def __init__(self, paths: Sequence[str], on_error: OnError, check_sums: CheckSums = "once") -> None:
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
        self._check_sums = check_sums
        self._is_checked = np.zeros(len(self), bool)
        if on_error == "skip" and check_sums != "never":
            self._leave_out_damaged()

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
            f"{os.path.relpath(file.path, common)}: {file.num_bytes} bytes, {number} records"
            for file, number in zip(self._files, np.diff(self._first).tolist(), strict=True)
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
        found, damaged = self._read_and_checked(rows)
        if len(damaged):
            raise ValueError(
                f"{self._damage(int(rows[damaged[0]]))}. Write the file again, or leave out what is damaged: "
                'paceline.data.records(…, on_error="skip") [record-damaged]'
            )
        return found

    def _read_and_checked(self, rows: npt.NDArray[np.int64]) -> tuple[list[bytes], npt.NDArray[np.intp]]:
        """The data of some records, and which of them are damaged, if they are to be checked."""
        unchecked = self._to_check(rows)
        tail = FOOTER_BYTES if len(unchecked) else 0
        files = (np.searchsorted(self._first, rows, side="right") - 1).tolist()
        offsets, lengths = self._offsets[rows].tolist(), self._lengths[rows].tolist()
        found: list[bytes] = []
        footers: list[bytes] = []
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
            data = self._bytes(file, first, end + tail - first)
            if len(data) < end + tail - first:
                raise self._shortened(file, first, first + len(data), end + tail)
            if behind == at + 1:
                if tail:
                    footers.append(data[-tail:])
                    data = data[:-tail]
                found.append(data)
            else:
                ends = [
                    offset - first + length
                    for offset, length in zip(offsets[at:behind], lengths[at:behind], strict=True)
                ]
                found += [data[end - length : end] for end, length in zip(ends, lengths[at:behind], strict=True)]
                footers += [data[end : end + FOOTER_BYTES] for end in ends] if tail else []
            at = behind
        if not tail:
            return found, unchecked
        if len(unchecked) < len(found):
            damaged = damaged_of([found[at] for at in unchecked], b"".join([footers[at] for at in unchecked]))
        else:
            damaged = damaged_of(found, b"".join(footers))
        if not len(damaged):
            self._is_checked[rows] = True
        return found, unchecked[damaged]

    def _to_check(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """Which of some records are to be checked when they are read."""
        if self._check_sums == "never":
            return _NONE
        if self._check_sums == "always":
            return np.arange(len(rows))
        is_checked = self._is_checked[rows]
        return _NONE if np.count_nonzero(is_checked) == len(rows) else np.flatnonzero(~is_checked)

    def _leave_out_damaged(self) -> None:
        """Reads all records once, and leaves out those whose data are damaged."""
        step = self.rows_at_once
        is_damaged = np.zeros(len(self), bool)
        for first in range(0, len(self), step):
            rows = np.arange(first, min(first + step, len(self)))
            is_damaged[rows[self._read_and_checked(rows)[1]]] = True
        self._is_checked[:] = True
        damaged = np.flatnonzero(is_damaged)
        if not len(damaged):
            return
        _LOGGER.warning(
            "the data of %d of %d records are damaged, and left out: %s%s",
            len(damaged),
            len(self),
            "; ".join(self._damage(row) for row in damaged[:_SHOWN_RECORDS].tolist()),
            "; …" if len(damaged) > _SHOWN_RECORDS else "",
        )
        whole = [
            np.count_nonzero(~is_damaged[first:end]) for first, end in zip(self._first, self._first[1:], strict=False)
        ]
        self._first = np.cumsum([0, *whole])
        self._offsets, self._lengths = self._offsets[~is_damaged], self._lengths[~is_damaged]
        self._is_checked = self._is_checked[~is_damaged]

    def _damage(self, row: int) -> str:
        file, offset = self._files[int(np.searchsorted(self._first, row, side="right")) - 1], self._offsets[row]
        number = int(np.searchsorted(file.offsets, offset))
        begin = offset - HEADER_BYTES
        return f"{file.path}, record {number} (from 0) at offset {begin}: the check sum of its data is wrong"

    def _shortened(self, file: int, offset: int, end_now: int, end: int) -> ValueError:
        found = self._files[file]
        return ValueError(
            f"{found.path}, at the record at offset {offset - HEADER_BYTES} (number "
            f"{np.searchsorted(found.offsets, offset)}, from 0): the file went on to byte {end} at least when it was "
            f"indexed, and now ends at byte {end_now}. Files must not be written while a job reads them: start the job "
            "again [record-file]"
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
