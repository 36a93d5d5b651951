"""The tutorials show the code of the examples, and their commands print what the pages say.

That each command is run holds for `make check` and `make proof` together: most pages are typed in `make proof` alone.
"""

import os
import re
from pathlib import Path

import pytest

from page_makers import page_maker
from programs import Program

tutorials = page_maker("make_tutorials")

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(tutorials.FOLDER.glob("*.md"))}
WITH_COMMANDS = [name for name, page in PAGES.items() if any(one.kind == "run" for one in tutorials.blocks_of(page))]
IN_EVERY_CHECK = ("by_habit",)
"""What the commands of the other pages do, other tests of every check do, too: `tests/examples/test_examples_run.py`
trains most of the scripts, and kills, hosts, servers, stages, profiles and notebooks have tests of their own."""

LIMIT_SECONDS = 360.0
CANNOT = re.compile(r"two_machines.py: cannot make machines here.*")


def missing(patterns: list[str], output: str) -> list[str]:
    return [pattern for pattern in patterns if not re.search(pattern, output, re.MULTILINE)]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_the_code_as_it_is(name: str) -> None:
    assert tutorials.with_code(PAGES[name]) == PAGES[name], "type: make tutorials TUTORIALS=--code"


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_a_page_shows_what_its_commands_must_print(name: str) -> None:
    outputs = [one for one in tutorials.blocks_of(PAGES[name]) if one.kind == "output"]
    assert outputs
    for one in outputs:
        assert one.tells, f"an output without `tells` is tested by nobody:\n{one.text}"
        assert missing(one.tells, one.text) == [], f"type: make tutorials TUTORIALS={name}"


@pytest.mark.parametrize("name", PAGES)
def test_each_picture_of_a_page_is_there(name: str) -> None:
    made = [one.words[1] for one in tutorials.blocks_of(PAGES[name]) if one.kind == "file"]
    shown = [target for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", PAGES[name]) if "/" not in target]
    assert sorted(made) == sorted(shown)
    assert [one for one in shown if not (tutorials.FOLDER / one).is_file()] == []


@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [name if name in IN_EVERY_CHECK else pytest.param(name, marks=pytest.mark.proof) for name in WITH_COMMANDS],
)
def test_the_commands_of_a_page_print_what_it_says(name: str, tmp_path: Path) -> None:
    """Each command of the tutorials: those of `IN_EVERY_CHECK` in every check, the others in `make proof`."""
    folder = tutorials.folder_of_examples(tmp_path)
    printed = ""
    for block in tutorials.blocks_of(PAGES[name]):
        if block.kind == "run":
            printed = ""
            for command in block.commands:
                ended = Program(["bash", "-c", command], folder, tutorials.variables()).ended(LIMIT_SECONDS)
                # As in tests/hosts: nobody but root makes namespaces; CI must.
                if (why_not := CANNOT.search(ended.output)) and os.environ.get("CI") != "true":
                    pytest.skip(why_not[0])
                assert ended.code == block.exit_code, f"{command}\n{ended.output}"
                printed += tutorials.plain(ended.output, folder)
        elif block.kind == "output":
            assert missing(block.tells, printed) == [], printed
        elif block.kind == "file":
            assert (folder / block.words[0]).is_file()


PAGE = """\
# Title

<!-- code: examples/train.py build_model -->
```python
old
```

<!-- run -->
```sh
one \\
  two
three
```

<!-- output
only: told|loss
tells: loss
-->
```text
told one two
...
loss 1.5 in 2.0 s
```

<!-- file: made.svg kept.svg -->

End.
"""


def test_code_comes_from_the_file() -> None:
    page = tutorials.with_code(PAGE)
    assert "\n```python\ndef build_model() -> keras.Model:\n" in page
    assert "\n    return model\n```\n\n<!-- run -->" in page
    assert "def main" not in page
    assert tutorials.with_code(page) == page
    assert tutorials.code("examples/train.py") == (tutorials.REPOSITORY / "examples/train.py").read_text()
    with pytest.raises(
        ValueError, match=r"examples/train.py has no nobody; it has EpochSeconds, datasets, build_model"
    ):
        tutorials.code("examples/train.py", "nobody")


def test_output_comes_from_the_commands() -> None:
    kept = []

    def run(command: str, exit_code: int) -> str:
        assert exit_code == 0
        return {"one two": "told one two\nnoise\nmore noise\n", "three": "loss 1.5 in 9.25 s\nnoise\n"}[command]

    assert tutorials.with_output(PAGE, run, lambda *names: kept.append(names)) == PAGE, "only the seconds differ"
    assert kept == [("made.svg", "kept.svg")]
    other = tutorials.with_output(PAGE, lambda command, _: f"loss 1.6 of {command}\n", lambda *_: None)
    assert "```text\nloss 1.6 of one two\nloss 1.6 of three\n```" in other
    assert other.endswith("\n\nEnd.\n")


@pytest.mark.parametrize(
    ("old", "new", "is_kept"),
    [
        ("step 63.5 ms: input 18 %", "step 9 ms: input 7 %", True),
        ("job aa42dead59a379ac", "job d90855d79165cc74", True),
        ("listens on 127.0.0.1:41234", "listens on 127.0.0.1:51234", True),
        ("32 steps in 19.9 s (11.3 steps/s)", "32 steps in 20 s (9 steps/s)", True),
        ("32 steps in 19.9 s", "33 steps in 19.9 s", False),
        ("loss: 0.25", "loss: 0.26", False),
    ],
)
def test_a_page_is_written_anew_only_for_what_matters(old: str, new: str, is_kept: bool) -> None:
    assert tutorials.settled(old, new) == (old if is_kept else new)


def test_an_output_is_what_a_terminal_shows(tmp_path: Path) -> None:
    output = f"\x1b[1m 1/2\x1b[0m ---\r\x1b[1m 2/2\x1b[0m done\nin {tmp_path}/a/b and {tmp_path}\n"
    assert tutorials.plain(output, tmp_path) == " 2/2 done\nin a/b and .\n"
