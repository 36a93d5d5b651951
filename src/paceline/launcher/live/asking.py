"""Asks the jobs of this host what they do: what `paceline status` and `paceline top` know of them."""

import os
import re
import socket
import stat
import tempfile
from pathlib import Path

from paceline.cluster.job_directory import job_directory
from paceline.launcher.live.job_status import JobStatus
from paceline.launcher.live.status_socket import NAME, is_own, name_in
from paceline.wire.codec import Decoder, GarbledError

ANSWER_SECONDS = 2.0
_MAX_ANSWER_BYTES = 1 << 26
_LIST = "type `paceline status` for a list of your jobs on this host"


class NoJobError(Exception):
    """There is no such job here, or not any more; the message is for the user."""


class SilentJobError(Exception):
    """A job is there, and does not answer as it should; the message is for the user."""


class OtherVersionError(SilentJobError):
    """A job is there, of another version of Paceline."""


def own_directories() -> list[Path]:
    """The directories of the jobs of this user on this host, also of some that are over."""
    pattern = job_directory("*")
    return [path for path in sorted(pattern.parent.glob(pattern.name)) if _fault_of(path) is None]


def directory_of(job: str) -> Path:
    """The directory of the job that the user means: by its id, by the beginning of it, or by its directory.

    Raises:
        NoJobError: there is none, or there are several.
    """
    if "/" in job or job in (".", ".."):
        return Path(job).absolute()
    known = {path.name.removeprefix(job_directory("").name): path for path in own_directories()}
    meant = [path for job_id, path in known.items() if job and job_id.startswith(job)]
    if len(meant) > 1 and job not in known:
        meant = [path for path in meant if _answers(path)] or meant  # a launcher that was killed leaves its directory
    if len(meant) > 1 and job not in known:
        raise NoJobError(f"{len(meant)} jobs have an id that begins with {job}. Fix: type more of it. [no-job]")
    if not meant:
        where = f"on the host where `paceline run` was typed, with TMPDIR as there (here {tempfile.gettempdir()})"
        shown = job if re.fullmatch(r"[\w.-]{1,64}", job, re.ASCII) else ascii(job)
        raise NoJobError(f"no job {shown} of yours runs on this host. Fix: {_LIST}, or ask {where}. [no-job]")
    return known.get(job, meant[0])


def ask(directory: Path) -> JobStatus:
    """What the job in `directory` does now.

    Raises:
        NoJobError: it is no job's directory, another user's, or the job is over.
        SilentJobError: the job does not answer in time, or is of another version.
    """
    try:
        if (fault := _fault_of(directory)) is not None:
            raise NoJobError(f"{directory} {fault} [no-job]")
        with name_in(directory) as name, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(ANSWER_SECONDS)
            asking.connect(name)
            if not is_own(asking):
                raise NoJobError(f"{directory} is of a job of another user. Fix: ask as that user. [no-job]")
            answer = _all_of(asking)
    except TimeoutError:
        raise SilentJobError(
            f"the job in {directory} does not answer within {ANSWER_SECONDS:g} s. Its launcher is stopped (Ctrl-Z), or "
            "this host is very busy. Fix: let the launcher continue, and ask again. [no-job]"
        ) from None
    except ConnectionRefusedError:
        raise NoJobError(
            f"the job in {directory} is over: its launcher ended without cleaning up. Fix: {_LIST}; you may delete "
            "that directory. [no-job]"
        ) from None
    except OSError as error:
        raise NoJobError(f"the job in {directory} cannot be asked ({error.strerror}). Fix: {_LIST}. [no-job]") from None
    if not answer:
        raise NoJobError(f"the job in {directory} gave no answer: it may just have ended. Fix: {_LIST}. [no-job]")
    try:
        return Decoder[JobStatus](JobStatus)(answer)
    except GarbledError:
        raise OtherVersionError(
            f"the job in {directory} runs with another version of Paceline. Fix: ask with the `paceline` that started "
            "it. [no-job]"
        ) from None


def _answers(directory: Path) -> bool:
    try:
        ask(directory)
    except NoJobError:
        return False
    except SilentJobError:
        pass
    return True


def _fault_of(directory: Path) -> str | None:
    """Why this is no directory of a job of this user; None: it is one."""
    try:
        found = directory.lstat()
        has_socket = stat.S_ISSOCK((directory / NAME).lstat().st_mode) if stat.S_ISDIR(found.st_mode) else False
    except OSError:  # there is nothing, or nothing that this user may see
        has_socket = False
    if not has_socket:
        return f"is not the directory of a job that runs. Fix: {_LIST}."
    if found.st_uid != os.geteuid():
        return f"is of a job of user {found.st_uid}. Fix: ask as that user."
    if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        return f"is open to other users, which no job's directory is. Fix: {_LIST}."
    return None


def _all_of(asking: socket.socket) -> bytes:
    received = bytearray()
    while data := asking.recv(1 << 16):
        received += data
        if len(received) > _MAX_ANSWER_BYTES:
            break
    return bytes(received)
