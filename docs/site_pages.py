"""What the site has beside the pages in the repository: their order, a page for each code of a message, and the API.

The order stands in the pages themselves. An *index page* is a page whose tables link to the pages below it; a page
belongs to the index page that links to it, in the order of the links.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = "docs/index"
INDEXES = (
    ROOT,
    "docs/sections/start",
    "docs/sections/tutorials",
    "docs/sections/how_to",
    "docs/sections/concepts",
    "docs/sections/reference",
    "docs/sections/engineering",
    "docs/decisions/README",
    "benchmarks/README",
)
API = "docs/api"
"""The page below which the generated pages of the folder of its name stand."""
GENERATED = (API, "docs/errors")
"""The folders that a build makes. Their pages are in no table."""
MODULES = ("paceline", "paceline.callbacks", "paceline.data", "paceline.events")
"""The public modules. Each has `__all__`."""
APART = "paceline"
"""The module whose names have a page each."""

_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:\s]+\.md)\)")
_CODE = re.compile(r"^### ([a-z-]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LOCAL = re.compile(r"\]\((?![a-z]+:)([^)\s]*)\)")
_BACKQUOTED = re.compile(r"(?<![`:])`([^`]+)`(?!`)")


def members(root: Path, docname: str) -> list[str]:
    """The pages that an index page links to in its tables, in that order, as paths from `root` without suffix."""
    page = root / f"{docname}.md"
    targets = [target for row in _ROW.findall(page.read_text(encoding="utf-8")) for target in _LINK.findall(row)]
    paths = [(page.parent / target).resolve().relative_to(root.resolve()) for target in targets]
    return [path.with_suffix("").as_posix() for path in paths]


def toctree(root: Path, docname: str) -> str:
    """What makes the pages below `docname` its part of the navigation; empty for most pages."""
    if docname == API:
        lines = [":glob:", "", f"/{API}/*"]
    elif docname in INDEXES:
        lines = [":hidden:", "", *(f"/{member}" for member in members(root, docname))]
    else:
        return ""
    return "\n".join(("", "", "```{toctree}", *lines, "```", ""))


def write_error_pages(docs: Path) -> None:
    """A page for each section of docs/troubleshooting.md, docs/errors/CODE.md."""
    text = (docs / "troubleshooting.md").read_text(encoding="utf-8")
    _write(docs / "errors", {f"{code}.md": _error_page(code, body) for code, body in _CODE.findall(text)})


def _error_page(code: str, body: str) -> str:
    def moved(link: re.Match[str]) -> str:
        target = link[1]
        return f"](../{'troubleshooting.md' if target.startswith('#') else ''}{target})"

    # An orphan: readers have the code, or search. A hundred lines in the navigation beside each page would help nobody.
    start = (
        f"---\norphan: true\n---\n\n# {code}\n\nThe message ends with `[{code}]` ([all codes](../troubleshooting.md))."
    )
    return f"{start}\n\n{_LOCAL.sub(moved, body.strip())}\n"


def write_api_pages(docs: Path) -> None:
    """A page for each name of `paceline`, and for each of its public modules: docs/api/NAME.rst."""
    pages = {}
    for module in MODULES:
        names = [name for name in importlib.import_module(module).__all__ if f"{module}.{name}" not in MODULES]
        if module == APART:
            public = [name for name in names if not name.startswith("_")]
            pages |= {f"{module}.{name}.rst": _api_page(f"{module}.{name}", [f"{module}.{name}"]) for name in public}
        else:
            pages[f"{module}.rst"] = _api_page(module, [f"{module}.{name}" for name in names])
    _write(docs / "api", pages)


def _api_page(title: str, names: list[str]) -> str:
    return "\n".join((title, "=" * len(title), "", *(line for name in names for line in _directive(name))))


def _directive(name: str) -> Iterator[str]:
    is_class = name.rpartition(".")[2][0].isupper()  # known without importing what is named, which imports TensorFlow
    yield from (f".. auto{'class' if is_class else 'function'}:: {name}", "")


def as_rst(lines: list[str]) -> list[str]:
    """A docstring, in which single backquotes and indented blocks are code, as reStructuredText has them."""
    text: list[str] = []
    paragraph = ""  # the last line that is not empty
    for line in lines:
        is_block = line.startswith("    ") and text and not text[-1]
        if is_block and not paragraph.startswith(" "):
            text += [".. code-block:: python", ""]
        text.append(_BACKQUOTED.sub(r"``\1``", line))
        paragraph = line or paragraph
    return text


def _write(folder: Path, pages: dict[str, str]) -> None:
    """The pages as files; files that are as they should be stay untouched, so that Sphinx reads only what is new."""
    folder.mkdir(exist_ok=True)
    for stale in {path.name for path in folder.iterdir()} - pages.keys():
        (folder / stale).unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
