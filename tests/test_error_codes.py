"""Every code that closes a message has its section in docs/troubleshooting.md, and every section its message."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "paceline"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
CODE = re.compile(r"(?:^| )\[([a-z]+(?:-[a-z]+)*)\]$")
OURS = {"ConfigurationError", "StartError", "DesynchronizedError"}
PASSED_ON = {
    ("rendezvous/attaching.py", "message"),  # the agent's, which has a code
    ("resilience/manager.py", "fault"),  # the chief's, which has a code
}
"""Raises of a text that another process or function has composed."""


def _texts(node: ast.AST) -> list[str]:
    """The literal texts in `node`."""
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _codes_in_source() -> dict[str, set[str]]:
    """The files in which each code closes a text that is no docstring."""
    found: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            match = CODE.search(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
            if match and id(node) not in alone:
                found.setdefault(match[1], set()).add(str(file.relative_to(SOURCE)))
    return found


def test_codes_and_sections_are_the_same() -> None:
    codes = _codes_in_source()
    sections = re.findall(r"^### ([a-z-]+)$", PAGE, re.MULTILINE)
    assert len(sections) == len(set(sections)), "a section twice"
    missing = {code: sorted(files) for code, files in codes.items() if code not in sections}
    assert not missing, f"codes without a section: {missing}"
    assert not set(sections) - set(codes), "sections without a message"


def test_sections_are_short_and_say_what_to_do() -> None:
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        lines = [line for line in body.split("\n## ")[0].splitlines() if line.strip()]
        assert 1 <= len(lines) <= 9, name


def test_every_error_that_ends_a_job_by_itself_carries_a_code() -> None:
    """The three errors of `errors.py` reach the user as one message without a traceback."""
    bare = []
    for file in SOURCE.rglob("*.py"):
        place = str(file.relative_to(SOURCE))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            raised = node.exc.func.id if isinstance(node.exc.func, ast.Name) else ""
            if raised not in OURS or any(CODE.search(text) for text in _texts(node.exc)):
                continue
            argument = node.exc.args[0] if node.exc.args else None
            if isinstance(argument, ast.Name) and (place, argument.id) in PASSED_ON:
                continue
            bare.append(f"{place}:{node.lineno}")
    assert not bare, f"raised without a code: {bare}"
