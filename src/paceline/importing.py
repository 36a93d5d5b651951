"""Acting right after a module has been imported, or around that, without importing it.

TensorFlow and Keras must not be imported before the user's script asks for them (it may set variables first), and some
things must be in place the moment they are: seeds, `tf.distribute`'s names, the seam with `fit`.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]
Block = Callable[[], AbstractContextManager[None]]


def after_import(name: str, action: Action) -> None:
    """Calls `action` with module `name` once it has been executed; at once if it already has been.

    Args:
        name: Full module name, e.g. ``"keras"``.
        action: Runs before the importer gets the module; an exception from it becomes the import's.
    """
    module = sys.modules.get(name)
    if module is not None and not _is_initialising(module):
        action(module)
        return
    _finder().actions.setdefault(name, []).append(action)


def around_import(name: str, block: Block) -> None:
    """Has module `name` executed within a `block` of its own; without effect if it already has been."""
    if name not in sys.modules:
        _finder().blocks.setdefault(name, []).append(block)


def _is_initialising(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _finder() -> "_Finder":
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder


class _Finder:
    """Stands first in `sys.meta_path`; lets the others find, and wraps the loader of modules that somebody awaits.

    Not derived from `importlib.abc`, whose import would cost every worker 10 ms.
    """

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}
        self.blocks: dict[str, list[Block]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.actions and fullname not in self.blocks:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _ActingLoader(spec.loader, self)  # type: ignore[assignment]  # a loader by shape
                return spec
        return None


class _ActingLoader:
    """Executes a module as its own loader would, then runs the actions that await it."""

    def __init__(self, own: Any, finder: _Finder) -> None:
        self._own = own
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader: packages are asked for their resources through it.
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        with ExitStack() as blocks:
            for block in self._finder.blocks.pop(module.__name__, ()):
                blocks.enter_context(block())
            self._own.exec_module(module)
        # One by one: an action may register others for the same module, which is still being imported.
        while actions := self._finder.actions.get(module.__name__):
            actions.pop(0)(module)
        self._finder.actions.pop(module.__name__, None)
