"""What a shell makes of our lines is what they were made from."""

import shlex
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.render.shell_text import command_line, exports, here_document, option_lines

LIMIT_SECONDS = 120
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(
    ["'", '"', "$HOME", "`id`", "\\", "\n", "#", "*", "~", "a b", "", "-n", "!", "END", "END_"]
)


def bash(script: str) -> bytes:
    return subprocess.run(
        ["bash", "--norc"], input=script.encode(), capture_output=True, check=True, timeout=LIMIT_SECONDS
    ).stdout


@given(st.lists(WORDS))
def test_a_line_splits_into_its_words(words: list[str]) -> None:
    assert shlex.split(command_line(words)) == words


@given(st.lists(WORDS, min_size=1))
@settings(max_examples=25, deadline=None)
def test_bash_sees_the_same_words(words: list[str]) -> None:
    printed = bash(f"printf '%s\\0' {command_line(words)}")
    assert printed.decode().split("\0")[:-1] == words


@given(st.lists(WORDS, min_size=1))
@settings(max_examples=25, deadline=None)
def test_options_on_lines_of_their_own_are_the_same_words(options: list[str]) -> None:
    printed = bash("\n".join(option_lines(["printf", "%s\\0"], options)))
    assert printed.decode().split("\0")[:-1] == options


@given(WORDS)
@settings(max_examples=25, deadline=None)
def test_variables_have_their_value_to_the_letter(value: str) -> None:
    assert bash("\n".join([*exports({"A": value}), 'printf %s "$A"'])).decode() == value


@given(st.lists(WORDS).map("\n".join))
@settings(max_examples=25, deadline=None)
def test_a_here_document_feeds_its_content(content: str) -> None:
    fed = bash("\n".join([*here_document("cat", content, "END"), "echo after"])).decode()
    assert fed == content.removesuffix("\n") + "\nafter\n"
