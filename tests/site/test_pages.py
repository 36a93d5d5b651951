"""What of the site needs no build: each page has its place in the navigation, each public name its description."""

import importlib
import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from page_makers import page_maker

REPOSITORY = Path(__file__).parents[2]
pages = page_maker("site_pages")

PATTERNS = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/README.md", "benchmarks/*/README.md")
"""The pages of the site, as `include_patterns` in docs/conf.py has them."""


def documents() -> set[str]:
    """The pages in the repository, without those that a build has generated."""
    found = {path.relative_to(REPOSITORY) for pattern in PATTERNS for path in REPOSITORY.glob(pattern)}
    return {path.with_suffix("").as_posix() for path in found if path.parent.as_posix() not in pages.GENERATED}


def test_each_page_is_once_in_the_navigation() -> None:
    named = Counter(member for index in pages.INDEXES for member in pages.members(REPOSITORY, index))
    missing = documents() - named.keys() - {pages.ROOT}
    assert not missing, "add a row with a link to the page in docs/sections/"
    assert not named.keys() - documents()
    assert [page for page, times in named.items() if times > 1] == []


def test_index_pages_are_reached_from_the_first_page() -> None:
    reached, waiting = set(), [pages.ROOT]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting += pages.members(REPOSITORY, page) if page in pages.INDEXES else []
    assert reached == documents()


@pytest.mark.parametrize("page", sorted(documents()))
def test_headings_go_down_one_level_at_a_time(page: str) -> None:
    text = (REPOSITORY / f"{page}.md").read_text(encoding="utf-8")
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels[0] == 1
    assert 1 not in levels[1:], "one title"
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))


@pytest.mark.parametrize("name", pages.MODULES)
def test_each_public_name_is_on_the_page_of_the_api(name: str) -> None:
    text = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
    module = importlib.import_module(name)
    described = "docs/events.md" if name == "paceline.events" else ""
    text += (REPOSITORY / described).read_text(encoding="utf-8") if described else ""
    missing = [one for one in module.__all__ if f"`{name}.{one}`" not in text and f"`{one}`" not in text]
    assert [one for one in missing if f"{name}.{one}" not in pages.MODULES] == []


def test_each_public_name_gets_a_page(tmp_path: Path) -> None:
    pages.write_api_pages(tmp_path)
    text = "\n".join(path.read_text(encoding="utf-8") for path in (tmp_path / "api").iterdir()) + "\n"
    for name in pages.MODULES:
        for one in importlib.import_module(name).__all__:
            assert f":: {name}.{one}\n" in text or one.startswith("_") or f"{name}.{one}" in pages.MODULES


def test_each_code_gets_a_page_whose_links_lead_somewhere(tmp_path: Path) -> None:
    (tmp_path / "troubleshooting.md").write_text(
        "# By message\n\n## One\n\n### port\n\nSee [this](#hosts), [that](many_hosts.md#x) and [there](https://a.example).\n\n"
        "## Two\n\n### hosts\n\nText.\n",
        encoding="utf-8",
    )
    pages.write_error_pages(tmp_path)
    assert sorted(path.name for path in (tmp_path / "errors").iterdir()) == ["hosts.md", "port.md"]
    text = (tmp_path / "errors" / "port.md").read_text(encoding="utf-8")
    assert "[this](../troubleshooting.md#hosts), [that](../many_hosts.md#x) and [there](https://a.example)." in text
    assert "Two" not in text


def test_a_page_whose_text_stays_is_not_written_again(tmp_path: Path) -> None:
    """Sphinx reads what is newer than its own copy: all 200 pages, each time."""
    pages.write_api_pages(tmp_path)
    (tmp_path / "api" / "gone.rst").touch()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "api").iterdir() if path.name != "gone.rst"}
    pages.write_api_pages(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "api").iterdir()} == before


def test_docstrings_become_what_sphinx_reads() -> None:
    docstring = ["Calls `f`.", "", "    f(1)", "", "    f(2)", "", "Args:", "    a: A ``b``, a `c`.", ""]
    assert pages.as_rst(docstring) == [
        *("Calls ``f``.", "", ".. code-block:: python", "", "    f(1)", "", "    f(2)", ""),
        *("Args:", "    a: A ``b``, a ``c``.", ""),
    ]
