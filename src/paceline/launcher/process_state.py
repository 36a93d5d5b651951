"""What the kernel says of a process that makes no progress."""

from pathlib import Path

_WORDS = {
    "R": "is running",
    "S": "sleeps",
    "D": "waits in the kernel, as for a disk or a network file system that does not answer",
    "T": "is stopped (SIGSTOP, or a debugger): SIGCONT lets it go on",
    "t": "is held by a debugger",
    "Z": "has ended",
}


def process_state(pid: int) -> str:
    """What the process `pid` does, to complete the sentence "rank 1 …"."""
    try:
        # After the name, which may hold anything, in brackets. See proc(5).
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        where = Path(f"/proc/{pid}/wchan").read_text().strip()
    except (OSError, IndexError):
        return "is gone"
    place = f", in {where}" if where not in ("", "0") else ""
    return f"{_WORDS.get(letter, f'is in state {letter}')}{place}"
