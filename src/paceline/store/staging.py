"""Shards on their way into a snapshot: what ranks have written that no manifest names yet.

    .tmp-step-000000000130-4f2a-g2-a0/      job 4f2a, generation 2, attempt 0
        rank-00000/tensors.safetensors, state.json
        rank-00000/record.json              written last: this shard is complete
        rank-00001/...

Names are agreed without a message: every rank knows step, job, generation and attempt. Two generations never share a
directory, so what a killed rank left behind is never taken for its successor's shard. Only the chief makes the
directory, so none comes back that it has taken away.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from paceline.store.folder import DamagedSnapshotError, Folder
from paceline.store.json_bytes import read, sealed, to_bytes, unsealed
from paceline.store.shards import (
    STATE_FILE,
    TENSORS_FILE,
    FileRecord,
    Shard,
    ShardRecord,
    decode_shard,
    new_checksum,
    rank_folder,
)
from paceline.wire.codec import encode

SNAPSHOT_PREFIX = "step-"
RECORD_FILE = "record.json"

_MAX_RECORD_BYTES = 16 << 20
_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_RANK_FOLDER = re.compile(r"rank-(\d{5,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Writer:
    """Whose directories are whose.

    Args:
        job_id: Letters, digits, ``_`` and ``-``; the same on all ranks and in all generations.
        generation: From 1.

    Raises:
        ValueError: one of them cannot be part of a name.
    """

    job_id: str
    generation: int = 1

    def __post_init__(self) -> None:
        if not _JOB_ID.fullmatch(self.job_id) or self.generation < 0:
            raise ValueError(
                f"received job {self.job_id!r}, generation {self.generation}; expected 1 to 64 letters, digits, "
                "_ and -, and a number from 0"
            )


class Staging:
    """The shards of snapshots that are not committed yet.

    Args:
        folder: Where.
        writer: Who is writing.
    """

    def __init__(self, folder: Folder, writer: Writer) -> None:
        self._folder = folder
        self._writer = writer

    def directory(self, step: int, attempt: int) -> str:
        """Where the shards of one snapshot are."""
        job = f"{self._writer.job_id}-g{self._writer.generation}"
        return f"{self._folder.staging_prefix}{snapshot_name(step)}-{job}-a{attempt}"

    def write(self, step: int, attempt: int, rank: int, shard: Shard) -> ShardRecord:
        """Writes a shard; see `SnapshotStore.write_shard`."""
        from paceline.store import tensors  # NumPy, which the command line does not need

        directory = self.directory(step, attempt)
        folder = f"{directory}/{rank_folder(rank)}"
        contents: dict[str, Iterator[bytes | memoryview]] = {
            STATE_FILE: iter([to_bytes(shard.state, "state")]),
            TENSORS_FILE: tensors.to_chunks(shard.tensors),
        }
        if rank == 0:
            self._folder.make("")
            self._folder.make(directory)
        self._folder.delete(folder)  # of an earlier try
        self._folder.make(folder)
        files = [self._write_file(folder, name, chunks) for name, chunks in contents.items()]
        record = ShardRecord(rank, tuple(files))
        self._folder.announce(f"{folder}/{RECORD_FILE}", sealed(encode(record)))
        return record

    def begun(self) -> dict[int, str]:
        """The directories of this generation that are there, by their attempts."""
        prefix = re.escape(f"{self._folder.staging_prefix}{SNAPSHOT_PREFIX}")
        job = re.escape(f"{self._writer.job_id}-g{self._writer.generation}")
        name = re.compile(rf"{prefix}\d+-{job}-a(\d+)", re.ASCII)
        return {int(match[1]): match[0] for match in map(name.fullmatch, self._folder.children("")) if match}

    def records(self, step: int, attempt: int) -> tuple[ShardRecord, ...]:
        """The records of the shards that are complete, by rank."""
        directory = self.directory(step, attempt)
        return tuple(record for name in self._folder.children(directory) for record in self._record(directory, name))

    def _record(self, directory: str, name: str) -> Iterator[ShardRecord]:
        if not (match := _RANK_FOLDER.fullmatch(name)):
            return
        with suppress(FileNotFoundError, DamagedSnapshotError):  # not there yet, or half of it
            with self._folder.reader(f"{directory}/{name}/{RECORD_FILE}") as file:
                content = unsealed(file.read(_MAX_RECORD_BYTES), RECORD_FILE)
            record = read(decode_shard, content, RECORD_FILE)
            if record.rank == int(match[1]):
                yield record

    def _write_file(self, folder: str, name: str, chunks: Iterator[bytes | memoryview]) -> FileRecord:
        checksum, size_bytes = new_checksum(), 0
        with self._folder.writer(f"{folder}/{name}") as file:
            for chunk in chunks:
                checksum.update(chunk)
                size_bytes += len(chunk)
                file.write(chunk)
        return FileRecord(name, size_bytes, checksum.hexdigest())


def is_of_job(name: str, writer: Writer) -> bool:
    """Whether the staging directory `name` was made by the job of `writer`, in whatever generation."""
    return _ending(name, writer.job_id, r"\d+") is not None


def is_of_generation(name: str, writer: Writer) -> bool:
    """Whether the staging directory `name` was made by the generation of `writer`."""
    return attempt_of(name, writer) is not None


def attempt_of(name: str, writer: Writer) -> int | None:
    """For which attempt the generation of `writer` has made the staging directory `name`; None: it has not."""
    match = _ending(name, writer.job_id, str(writer.generation))
    return None if match is None else int(match[1])


def _ending(name: str, job_id: str, generation: str) -> re.Match[str] | None:
    return re.search(rf"{SNAPSHOT_PREFIX}\d+-{re.escape(job_id)}-g{generation}-a(\d+)\Z", name, re.ASCII)


def snapshot_name(step: int) -> str:
    """How the directory of a snapshot is called; names sort like steps."""
    return f"{SNAPSHOT_PREFIX}{step:012d}"
