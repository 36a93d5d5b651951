"""The commands that README, the pages of docs/ and the help of the verbs tell users to type."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]

PAGES = tuple(
    path.relative_to(REPOSITORY).as_posix()
    for folder, pattern in ((".", "*.md"), ("docs", "**/*.md"), ("examples", "*.md"), ("benchmarks", "*/README.md"))
    for path in sorted((REPOSITORY / folder).glob(pattern))
    if path.name != "CHANGELOG.md"  # tells of commands as they were
)

_SHELL = ("sh", "bash", "shell", "console")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(r"^<!-- run.*?-->\n```\w+\n.*?^```", re.MULTILINE | re.DOTALL)
"""In tutorials: `tests/examples/test_tutorials.py` runs what stands there."""
_INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_CONTROL = ("|", "||", "&&", "&", ";", "(", ")")
_REDIRECTS = (">", ">>", "&>", "<")


@dataclass(frozen=True)
class Command:
    """One program and its words, as the shell would hand them over."""

    where: str
    """For the reader of a failure: the page, or the verb whose help it is in."""
    words: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    """What stands before the words as NAME=VALUE."""
    written: tuple[str, ...] = ()
    """Files that the output goes to."""
    is_whole: bool = True
    """False: a part of a sentence, which may name a verb or an option without all that belongs to it."""

    @property
    def program(self) -> str:
        return Path(self.words[0]).name

    def is_abbreviated(self) -> bool:
        """Whether a sentence leaves out what is no matter there: the script, or the value for which it writes N."""
        names_script = any(word.endswith(".py") for word in self.words)
        return not self.is_whole and not (names_script and not any(map(str.isupper, self.words)))

    def __str__(self) -> str:
        return f"{self.where}: {shlex.join(self.words)}"


def commands_of_page(page: str) -> list[Command]:
    """All commands of the page: of its blocks for the shell, of other blocks, and of its sentences, in this order."""
    text = _TYPED.sub("", (REPOSITORY / page).read_text(encoding="utf-8"))
    blocks = [body for language, body in _FENCE.findall(text) if language in _SHELL]
    found = [command for body in blocks for command in _commands(body, page)]
    prose = _FENCE.sub("", text)
    # Drawings: what follows two spaces is a remark on the command.
    drawn = [line.split("  ")[0] for line in _INDENTED.findall(prose)]
    for part in (*drawn, *_INLINE.findall(_INDENTED.sub("", prose))):
        if part.startswith(("paceline ", "srun paceline ", "make ", "pip ")):
            found += _commands(re.split(r"[(|]|…", part)[0], page, is_whole=False)
    return found


def options_in_sentences(page: str) -> set[str]:
    """The options that the page names on their own, such as `--standby`; of commands, see `commands_of_page`."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return {found[0] for span in _INLINE.findall(text) if (found := re.match(r"--[a-z][\w-]*", span))}


def commands_of_help(app: Any) -> list[Command]:
    """The examples in the help of all verbs."""
    return [command for words, verb in verbs(app) for command in _examples(words, verb)]


def verbs(group: Any, above: tuple[str, ...] = ("paceline",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb that does something, or holds others, with the words that lead to it."""
    yield above, group
    context = group.make_context(above[-1], [], resilient_parsing=True)
    for name in group.list_commands(context):
        verb = group.get_command(context, name)
        if hasattr(verb, "list_commands"):
            yield from verbs(verb, (*above, name))
        else:
            yield (*above, name), verb


def _examples(words: tuple[str, ...], verb: Any) -> list[Command]:
    epilog = re.sub(r"^(Try|Examples?): ", "", verb.epilog or "")
    help_ = (verb.help or "").partition("\b\n")[2].partition("\n")[2]
    return [
        command
        for text in (epilog, help_)
        for command in _commands(text, " ".join(words) + " --help")
        if command.program == "paceline" or text is epilog or " paceline" in text
    ]


def _commands(text: str, where: str, is_whole: bool = True) -> list[Command]:
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        part: list[str] = []
        for word in (*lexer, ";"):
            if word not in _CONTROL:
                part.append(word)
            elif part:
                found.append(_command(part, where, is_whole))
                part = []
    return found


def _command(words: list[str], where: str, is_whole: bool) -> Command:
    rest, written = [], []
    words = words[words[0] == "$" :]  # a prompt
    for before, word in zip(("", *words), words, strict=False):
        if before in _REDIRECTS and before != "<":
            written.append(word)
        elif word not in _REDIRECTS and before != "<":
            rest.append(word)
    variables = {}
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        name, _, variables[name] = rest.pop(0).partition("=")
    return Command(where, tuple(rest), variables, tuple(written), is_whole)
