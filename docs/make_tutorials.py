"""Writes into the pages of docs/tutorials/ the code of the examples, and what their commands print.

make tutorials                              all pages: runs their commands, one after the other
make tutorials TUTORIALS=first_script       this page only
make tutorials TUTORIALS=--code             the code only: runs nothing

A page is Markdown. A comment in front of a block, or in its place, says where the block comes from:

    <!-- code: examples/train.py build_model -->    the file, or these of its functions, classes and cells
    <!-- run -->                                    commands, typed in a copy of the folder examples/
    <!-- run: exit 75 -->                           the same, for commands that end with another exit code than 0
    <!-- output                                     what the commands above it have printed
    only: Epoch|killed                              lines with this pattern; others become "..."
    tells: resumes from step \\d+                    a test asks for this pattern in each run; may be repeated
    -->
    <!-- file: plan.svg transformer.svg -->         a file of the commands above, kept beside the page by this name
"""

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "docs" / "tutorials"
EXAMPLES = "examples"
LIMIT_SECONDS = 600.0

_BLOCK = re.compile(
    r"^<!-- (?P<kind>code|run|output|file)(?P<says>(?:(?!-->).)*)-->\n(?:```(?P<language>\w+)\n(?P<text>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_CELL = re.compile(r"^# %% (\w+)\n(.*?)(?=^# %% |\Z)", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(r"^(only|tells): (.+)$", re.MULTILINE)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[^\n]*\r(?!\n)|\x08")
_VARIES = re.compile(
    r"job [0-9a-f]{16}|\bpid \d+|:\d{5}\b|waiting for (?:each other|rank \d+)"
    r"|\d[\d.,]*(?= ?(?:s|ms|us|%|[kM]?B|GB|steps/s|rows/s|s/step|ms/step|times)(?:\W|$))"
)
"""What differs from run to run, and is no reason to write a page anew."""


@dataclass(frozen=True)
class Block:
    """What follows one of the comments."""

    kind: str
    says: str
    """The rest of the comment."""
    text: str

    @property
    def words(self) -> list[str]:
        """The rest of a comment of one line."""
        return self.says.removeprefix(":").split()

    @property
    def only(self) -> str:
        """The pattern of the lines that are shown of an output; empty: all."""
        return next((value for key, value in _SETTING.findall(self.says) if key == "only"), "")

    @property
    def tells(self) -> list[str]:
        """Patterns that stand in the output of each run."""
        return [value for key, value in _SETTING.findall(self.says) if key == "tells"]

    @property
    def exit_code(self) -> int:
        """With which each command of a block for the shell ends."""
        return int(self.words[1]) if self.words else 0

    @property
    def commands(self) -> list[str]:
        """Those of a block for the shell."""
        return re.sub(r" *\\\n *", " ", self.text).splitlines()


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that come from somewhere, in its order."""
    return [_block(match) for match in _BLOCK.finditer(page)]


def _block(match: re.Match[str]) -> Block:
    return Block(match["kind"], match["says"].strip(), match["text"] or "")


def with_code(page: str) -> str:
    """The page with the code of the examples as it is now.

    Raises:
        ValueError: an example has no function or class of this name.
    """
    return _written(page, lambda block: code(*block.words) if block.kind == "code" else block.text)


def code(path: str, *names: str) -> str:
    """The text of a file of the repository, or of its functions, classes and cells ("# %% name") by these names."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    if not names:
        return text
    lines = text.splitlines()
    parts = {name: cell.strip("\n") for name, cell in _CELL.findall(text)}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            parts[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    if missing := [name for name in names if name not in parts]:
        raise ValueError(f"{path} has no {', '.join(missing)}; it has {', '.join(parts)}")
    return "\n\n\n".join(parts[name] for name in names) + "\n"


def with_output(page: str, run: Callable[[str, int], str], keep: Callable[[str, str], None]) -> str:
    """The page with what its commands print.

    Args:
        page: Its text.
        run: Types a command, which is to end with this exit code, and gives what it has printed.
        keep: Takes a file that the commands have made, and the name by which the page shows it.
    """
    printed = ""

    def text_of(block: Block) -> str:
        nonlocal printed
        if block.kind == "run":
            printed = "".join(run(command, block.exit_code) for command in block.commands)
        elif block.kind == "file":
            keep(*block.words)
        elif block.kind == "output":
            return settled(block.text, chosen(printed, block.only))
        return block.text

    return _written(page, text_of)


def chosen(output: str, only: str) -> str:
    """The lines with a pattern; "..." stands for others between them."""
    lines = [line.rstrip() if re.search(only, line) else None for line in output.splitlines()]
    shown = [
        "..." if line is None else line
        for before, line in zip(["", *lines], lines, strict=False)
        if line is not None or before is not None
    ]
    while shown and shown[0] == "..." and only:
        del shown[0]
    while shown and shown[-1] == "..." and only:
        del shown[-1]
    return "\n".join(shown).strip("\n") + "\n"


def settled(old: str, new: str) -> str:
    """The old text, if the new one differs only in what differs from run to run."""
    return old if _VARIES.sub("#", old) == _VARIES.sub("#", new) else new


def plain(output: str, folder: Path) -> str:
    """Without what a terminal would not show, and without what is of this machine."""
    text = _ESCAPES.sub("", output)
    for own in (f"{folder}/", f"{Path(sys.executable).parent}/"):
        text = text.replace(own, "")
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", text.replace(str(folder), "."))


def _written(page: str, text_of: Callable[[Block], str]) -> str:
    def replaced(match: re.Match[str]) -> str:
        text = text_of(_block(match))
        if match["text"] is None:
            return match[0]
        return f"{match[0][: match.start('text') - match.start()]}{text}```"

    return _BLOCK.sub(replaced, page)


def folder_of_examples(parent: Path) -> Path:
    """A copy of examples/ in which commands are typed: what they write there is no file of the repository."""
    ignored = shutil.ignore_patterns("__pycache__", "logs")
    return Path(shutil.copytree(REPOSITORY / EXAMPLES, parent / EXAMPLES, ignore=ignored))


def variables() -> dict[str, str]:
    """Of the shell in which commands are typed."""
    own = ("PACELINE_", "TF_CONFIG", "COLUMNS", "TERM")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**inherited, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _typed(command: str, exit_code: int, folder: Path) -> str:
    print(f"$ {command}", flush=True)
    finished = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    output = finished.stdout.decode(errors="replace")
    if finished.returncode != exit_code:
        sys.exit(f"{output}\nexit code {finished.returncode}: {command}")
    return plain(output, folder)


def main(*words: str) -> None:
    """Writes the pages that are named, or all."""
    names = [word for word in words if word != "--code"]
    for path in [FOLDER / f"{name}.md" for name in names] or sorted(FOLDER.glob("*.md")):
        page = with_code(path.read_text(encoding="utf-8"))
        if "--code" not in words:
            with tempfile.TemporaryDirectory(prefix="paceline-tutorial-") as parent:
                folder = folder_of_examples(Path(parent))

                def run(command: str, exit_code: int, folder: Path = folder) -> str:
                    return _typed(command, exit_code, folder)

                def keep(made: str, name: str, folder: Path = folder) -> None:
                    shutil.copyfile(folder / made, FOLDER / name)

                page = with_output(page, run, keep)
        path.write_text(page, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
