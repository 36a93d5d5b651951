"""docs/reference.md is complete, and not older than the code; so is docs/events.md."""

import re
from collections.abc import Iterator
from pathlib import Path

import paceline
from page_makers import DOCS, page_maker

SOURCES = Path(paceline.__file__).parent


def sources() -> Iterator[tuple[str, str]]:
    for path in SOURCES.rglob("*.py"):
        yield path.relative_to(SOURCES).as_posix(), path.read_text(encoding="utf-8")


def test_the_page_says_what_the_code_says() -> None:
    maker = page_maker("make_reference")
    assert (DOCS / "reference.md").read_text(encoding="utf-8") == maker.reference(), "type: make docs"
    assert (DOCS / "events.md").read_text(encoding="utf-8") == maker.events_page(), "type: make docs"


def test_every_variable_of_paceline_is_on_the_page() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    missing = {
        f"{name} ({file})"
        for file, text in sources()
        for name in re.findall(r"\bPACELINE_[A-Z_]*[A-Z]\b", text)
        if f"| `{name}` |" not in page
    }
    assert not missing


def test_exit_codes_have_one_home() -> None:
    """The page takes them from there; 130 had three."""
    elsewhere = {file for file, text in sources() if re.search(r"^_?EXIT_[A-Z]+ = [0-9]+$", text, re.MULTILINE)}
    assert elsewhere == {"errors.py"}
