"""What the values of a setting must be, and how its faults are told: each with field, received, expected and fix. Pure.

A wrong value would often be refused much later, by another program, one at a time. The readers of settings collect into
a `FaultList`, and raise once, at the end, the error it makes.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.errors import ConfigurationError

_MAX_SHOWN_CHARACTERS = 100
_MAX_FAULTS_TOLD = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a setting.

    >>> print(Fault("task.index", shown(-1), "an integer from 0 to 1", "count tasks from 0"))
    task.index: received -1; expected an integer from 0 to 1. Fix: count tasks from 0.
    """

    field: str
    received: str
    expected: str
    fix: str

    def __str__(self) -> str:
        return f"{self.field}: received {self.received}; expected {self.expected}. Fix: {self.fix}."


class FaultList:
    """The faults found so far in one setting.

    >>> faults = FaultList("TF_CONFIG", "[tf-config]")
    >>> faults.add("task", "nothing", "an object", "add it")
    >>> print(faults.error())
    TF_CONFIG has 1 fault:
      task: received nothing; expected an object. Fix: add it. [tf-config]

    Args:
        setting: the variable or flag that the user wrote.
        code: where `docs/troubleshooting.md` explains it, in brackets.
    """

    def __init__(self, setting: str, code: str) -> None:
        self._setting = setting
        self._code = code
        self._faults: list[Fault] = []

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, field: str, received: str, expected: str, fix: str) -> None:
        """Notes one more fault."""
        self._faults.append(Fault(field, received, expected, fix))

    def append(self, fault: Fault) -> None:
        """Notes a fault that another reader found."""
        self._faults.append(fault)

    def error(self) -> ConfigurationError:
        """The error that tells all faults, one a line; of very many only the first."""
        told = [f"  {fault}" for fault in self._faults[:_MAX_FAULTS_TOLD]]
        if len(self) > len(told):
            told.append(f"  and {len(self) - len(told)} more")
        count = "1 fault" if len(self) == 1 else f"{len(self)} faults"
        return ConfigurationError("\n".join([f"{self._setting} has {count}:", *told]) + f" {self._code}")


def refuse_any(setting: str, code: str, faults: Iterable[Fault]) -> None:
    """Returns if there are no `faults` in the `setting`; see `FaultList`.

    Raises:
        ConfigurationError: names all of them.
    """
    found = FaultList(setting, code)
    for fault in faults:
        found.append(fault)
    if len(found):
        raise found.error()


def shown(value: object) -> str:
    """A JSON value as one short line of JSON, so that users recognise what they wrote; never raises.

    Characters outside ASCII are escaped: the message must survive any terminal, and a lone surrogate has no
    encoding at all.
    """
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a deeply nested value"
    except (TypeError, ValueError):
        text = ascii(value)
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:_MAX_SHOWN_CHARACTERS]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # every method that is made costs time at each start
class Grammar:
    """Texts of a certain form.

    >>> print(Grammar("[a-z]+", "lower-case letters", "team").fault("--namespace", "My_Team"))
    --namespace: received "My_Team"; expected lower-case letters. Fix: write it like team.

    Args:
        pattern: what the whole value must match.
        expected: the same, in words.
        example: a value that would do.
        max_characters: the longest that is taken.
    """

    pattern: str
    expected: str
    example: str
    max_characters: int = 253

    def fault(self, field: str, value: str | None) -> Fault | None:
        """What is wrong with `value`, which the user gave as `field`; None: nothing is, or there is no value."""
        if value is None:
            return None
        if is_text(value) and len(value) <= self.max_characters and re.fullmatch(self.pattern, value, re.ASCII):
            return None
        return Fault(field, shown(value), self.expected, f"write it like {self.example}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Range:
    """Numbers within limits; of the lower ones exactly one is given.

    Args:
        lowest: the smallest value.
        highest: the largest value.
        above: what a value must exceed.
        expected: the same, in words.
        example: a value that would do.
    """

    expected: str
    example: str
    lowest: float = -math.inf
    highest: float = math.inf
    above: float = -math.inf

    def fault(self, field: str, value: float | None) -> Fault | None:
        """What is wrong with `value`, which the user gave as `field`; None: nothing is, or there is no value."""
        if value is None or (self.lowest <= value <= self.highest and value > self.above and math.isfinite(value)):
            return None
        return Fault(field, shown(value), self.expected, f"write it like {self.example}")


def is_text(value: str) -> bool:
    """Whether a file in UTF-8 can hold `value` and a command line can pass it on."""
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes of the command line that are not UTF-8 arrive as lone surrogates
        return False
    return "\0" not in value


_WORD = r"[^\s,:]"
_NUMBER = "[1-9][0-9]{0,11}"
LOWER_IS_BETTER = rf"{_WORD}*(loss|error|entropy|divergence){_WORD}*|({_WORD}*_)?(mse|rmse|mae|mape|msle)(_{_WORD}*)?"
"""Names of metrics."""
_HIGHER_IS_BETTER = rf"{_WORD}*(accuracy|precision|recall|score){_WORD}*|({_WORD}*_)?(acc|auc|f1)(_{_WORD}*)?"
_BEST = rf"best:{_NUMBER}:({_WORD}+:(min|max)|{LOWER_IS_BETTER}|{_HIGHER_IS_BETTER})"
_POLICY = f"((newest:)?{_NUMBER}|every:{_NUMBER}|{_BEST})"

RETENTION = Grammar(
    f"{_POLICY}(,{_POLICY})*",
    "a number from 1 on, newest:N, every:STEPS, best:N:METRIC, or several with commas between. Where the name of a "
    "metric does not say which values are better, add :min or :max",
    "newest:2,best:3:val_loss",
)
"""Which snapshots are kept."""
