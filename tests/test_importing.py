"""Acting right after a module has been imported."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.importing import after_import

NAME = "paceline_test_awaited"


@pytest.fixture(autouse=True)
def awaited_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported, and the import system as it was afterwards."""
    path = tmp_path / f"{NAME}.py"
    path.write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield path
    sys.modules.pop(NAME, None)


def test_nothing_is_imported_by_waiting() -> None:
    after_import(NAME, lambda module: None)
    assert NAME not in sys.modules


def test_an_action_registered_by_an_action_runs_too() -> None:
    """The list of actions was taken away as a whole before the first ran, and what that added was lost."""
    seen = []
    after_import(NAME, lambda _: after_import(NAME, lambda module: seen.append(module.value)))
    module = importlib.import_module(NAME)
    assert seen == [1]
    importlib.reload(module)
    assert seen == [1], "once"


def test_actions_run_in_order_on_the_finished_module() -> None:
    seen = []
    after_import(NAME, lambda module: seen.append(("first", module.value)))
    after_import(NAME, lambda module: seen.append(("second", module.value)))
    module = importlib.import_module(NAME)
    assert seen == [("first", 1), ("second", 1)]
    importlib.reload(module)
    assert len(seen) == 2, "once"


def test_a_module_that_is_there_is_acted_on_at_once() -> None:
    module = importlib.import_module(NAME)
    seen = []
    after_import(NAME, seen.append)
    assert seen == [module]


def test_the_module_looks_as_if_nobody_had_waited(awaited_module: Path) -> None:
    after_import(NAME, lambda module: None)
    module = importlib.import_module(NAME)
    assert module.__file__ == str(awaited_module)
    assert type(module.__loader__).__module__.startswith("_frozen_importlib")
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__


def test_an_error_of_an_action_is_the_imports() -> None:
    def refuse(module: object) -> None:
        raise RuntimeError("not this backend")

    after_import(NAME, refuse)
    with pytest.raises(RuntimeError, match="not this backend"):
        importlib.import_module(NAME)
    assert NAME not in sys.modules


def test_a_module_that_does_not_exist_is_still_not_found() -> None:
    after_import("paceline_test_missing", lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("paceline_test_missing")
