"""Strings stay strings, for every reader of YAML."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paceline.render.yaml_text import documents

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
TREES = st.recursive(
    TEXTS | st.integers() | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=12
)


@given(st.lists(TREES, max_size=3))
def test_what_is_written_is_read(trees: list[object]) -> None:
    assert list(yaml.safe_load_all(documents(trees))) == trees


@pytest.mark.parametrize(
    "text",
    ["1e3", "0o17", "0x1F", "017", "1_000", "1:30", "y", "N", "yes", "Off", "true", "NULL", "~", "", ".inf", "-", "+1",
     "2026-11-21", "<<", "=", "a: b", "a #b", "*a", "&a", "!a", "a\nb", " a", "@a", "`", "{", "[", "%a", "a:", "ä"],
)  # fmt: skip
def test_a_word_that_may_mean_something_else_is_quoted(text: str) -> None:
    [scalar] = [token for token in yaml.scan(documents([text])) if isinstance(token, yaml.ScalarToken)]
    assert not scalar.plain
    assert scalar.value == text


@pytest.mark.parametrize("text", ["Job", "batch/v1", "app.kubernetes.io/name", "train-0", "None", "a_b"])
def test_an_ordinary_word_is_plain(text: str) -> None:
    assert documents([text]).split() == ["---", text, *documents(["x"]).split()[2:]]


def test_the_same_object_twice_is_written_twice() -> None:
    labels = {"a": "b"}
    assert documents([[labels, labels]]) == "---\n- a: b\n- a: b\n"
