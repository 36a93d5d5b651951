"""What a row of the table of refusals has."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Refusal:
    """One way to provoke a code of docs/troubleshooting.md.

    Args:
        code: Without its brackets.
        provoked_by: The words of a command line, or a function that a process calls; `test_refusals.py` knows how.
        refused_with: The exit code, or the class of the exception.
        cause: What the message says has happened.
        remedy: What it says to type or to change.
        variables: Of the environment.
    """

    code: str
    provoked_by: Any
    refused_with: Any
    cause: str
    remedy: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def check(self, message: str) -> None:
        """Whether `message` says all that it should."""
        assert message.rstrip().endswith(f"[{self.code}]"), message
        assert self.cause in message, message
        assert self.remedy in message, message


def told(rows: Sequence[Refusal], code: str) -> list[str]:
    """The class and the message of the exception with which a call of `rows` is refused, for cases of warm worlds."""
    [row] = [row for row in rows if row.code == code]
    os.environ.update(row.variables)
    try:
        row.provoked_by()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["", "nothing was raised"]
