"""The programs in docs/ that write pages from the code."""

import importlib.util
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[1] / "docs"


def page_maker(name: str) -> ModuleType:
    """The program ``docs/NAME.py`` as a module."""
    specification = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
