"""Where no strategy is and no job was launched, each replacement does what it has replaced: numbers, look, exceptions."""

import json
from pathlib import Path
from typing import Any

import pytest

from programs import run_python

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("pass_through.py")

NOT_CALLED: dict[str, str] = {}
"""By attribute: why no call of `calls.py` reaches it."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pass_through")
    ended = run_python(SCRIPT, folder / "told.json", folder=folder, limit_seconds=580)
    assert ended.code == 0, ended.output
    return json.loads((folder / "told.json").read_text())


def test_calls_give_the_same(told: Any) -> None:
    assert told["results"] == {}


def test_replacements_have_the_name_and_signature_of_what_they_replace(told: Any) -> None:
    assert told["looks"] == {}


def test_what_an_original_raises_arrives(told: Any) -> None:
    assert told["exceptions"] == {}


def test_each_attribute_has_a_call_or_a_reason(told: Any) -> None:
    assert {name for name, calls in told["reached"].items() if not calls} == NOT_CALLED.keys()
