"""Examples come in pairs whose difference shows what Paceline costs. This keeps the two from drifting apart."""

import difflib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def code(name: str) -> list[str]:
    """The lines of an example after its docstring."""
    return (EXAMPLES / name).read_text().split('"""', 2)[2].splitlines()


@pytest.mark.parametrize(
    ("twin", "most_lines_added"), [("multi_worker", 3), ("custom_loop", 15), ("notebook_function", 4)]
)
def test_twins_differ_in_little(twin: str, most_lines_added: int) -> None:
    difference = list(difflib.ndiff(code(f"{twin}_plain.py"), code(f"{twin}.py")))
    added = [line for line in difference if line.startswith("+ ") and line.strip("+ ")]
    assert any("paceline" in line for line in added)
    assert len(added) <= most_lines_added, "\n".join(added)


def test_plain_sides_do_not_know_of_paceline() -> None:
    plain = ["first_script.py", "train.py", *(path.name for path in EXAMPLES.glob("*_plain.py"))]
    assert len(plain) == 5
    for name in plain:
        assert not any("import paceline" in line or "paceline." in line for line in code(name)), name


def test_the_examples_page_names_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f"`{path.name}`" not in page] == []
