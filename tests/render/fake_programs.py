"""Programs on a PATH of the test's own, in place of those that a rendered script calls."""

import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT_SECONDS = 120.0


def write_program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


@contextmanager
def running(
    script: Path, programs: Path, folder: Path, variables: Mapping[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    """`script` under bash in `folder`; it ends with the block, at the latest."""
    process = subprocess.Popen(
        ["bash", script],
        cwd=folder,
        env={"PATH": f"{programs}:{os.environ['PATH']}", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate(timeout=LIMIT_SECONDS)


def next_line(process: "subprocess.Popen[bytes]") -> str:
    """The next line that the programs print."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([process.stdout], [], [], LIMIT_SECONDS)
        assert readable, f"no line within {LIMIT_SECONDS} s; so far {line!r}"
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, f"the output has ended; its last line is {line!r}"
        line += byte
    return line.decode().removesuffix("\n")
