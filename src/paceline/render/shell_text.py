"""Commands as lines of a shell script that a person can read and the shell cannot misread."""

import shlex
from collections.abc import Mapping, Sequence


def command_line(words: Sequence[str]) -> str:
    """One line that the shell splits into exactly `words`."""
    return shlex.join(words)


def option_lines(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """`words`, then each of `options` on a line of its own, continued with a backslash."""
    lines = [command_line(words), *(f"    {shlex.quote(option)}" for option in options)]
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def exports(variables: Mapping[str, str]) -> list[str]:
    """A line for each variable, with its value to the letter."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def here_document(command: str, content: str, word: str) -> list[str]:
    """The lines that feed `content` to `command`, unchanged; `word` ends it, made longer while a line equals it."""
    lines = content.split("\n")
    while word in lines:
        word += "_"
    return [f"{command} <<'{word}'", content.removesuffix("\n"), word]
