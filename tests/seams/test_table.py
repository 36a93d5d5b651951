"""The table of all that is put in the place of attributes of Keras and TensorFlow."""

import runpy
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf

from paceline.data import compat as data_compat
from paceline.fit import compat
from paceline.pipeline import compat as pipeline_compat
from paceline.seams import table
from paceline.seams.install import install_with_keras
from paceline.spmd import compat as spmd_compat
from paceline.strategy.seams import Seam, install, missing_names
from page_makers import DOCS, page_maker


def test_the_page_is_of_today() -> None:
    assert (DOCS / "seams.md").read_text(encoding="utf-8") == page_maker("make_seams").page(), "type: make docs"


def test_every_spelling_of_a_function_is_replaced() -> None:
    """`keras.models.save_model` once was Keras's own: its rows were put around each other, and only the last looked."""
    install_with_keras()
    assert keras.models.save_model is keras.saving.save_model is compat.saving_api.save_model
    assert keras.saving.save_weights is compat.saving_api.save_weights
    assert keras.models.load_model is compat.saving_api.load_model
    assert keras.utils.get_file is compat.file_utils.get_file
    originals: dict[int, tuple[Any, str]] = {}
    for row in table.rows():
        if isinstance(row.owner, ModuleType) and row.owner.__name__.startswith("keras."):
            for name in row.names:
                function = getattr(row.owner, name)
                while (function := getattr(function, "__wrapped__", None)) is not None:
                    originals[id(function)] = function, f"{row.where}.{name}"
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] == "keras" and isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                original, told = originals.get(id(value), (None, ""))
                assert original is None or original is not value, f"{module_name}.{name} is still Keras's {told}"


def test_what_a_new_keras_lacks_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(compat.file_utils, "urlretrieve")
    monkeypatch.delattr(keras.callbacks.TensorBoard, "_log_weights")
    missing = missing_names(table.all_rows())
    assert missing == ["utils.file_utils.urlretrieve", "TensorBoard._log_weights"]
    with pytest.raises(ImportError, match=r"urlretrieve.*TensorBoard\._log_weights.*\[version\]"):
        compat.check(missing)


@pytest.mark.parametrize(
    ("file", "module"),
    [
        (compat.__file__, "keras.src.trainers.epoch_iterator"),
        (pipeline_compat.__file__, "keras.src.ops.node"),
        (data_compat.__file__, "tensorflow.python.data.ops.shuffle_op"),
        (spmd_compat.__file__, "tensorflow.python.framework.func_graph"),
    ],
)
def test_a_module_that_has_moved_is_told_with_the_version(
    file: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports of private modules stood outside of any `try`: a bare `ModuleNotFoundError` said nothing of versions."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module}.*\[version\]"):
        runpy.run_path(file)


def _owner() -> Any:
    class Owner:
        def method(self, number: int) -> int:
            """Keras's."""
            return number

        @property
        def size(self) -> int:
            return 1

    return Owner


def test_later_rows_are_around_earlier_ones() -> None:
    owner = _owner()

    def wrapper(told: int) -> Any:
        return lambda original: lambda self, number: 10 * original(self, number) + told

    install([Seam(owner, "method", wrapper(1), "a"), Seam(owner, "method", wrapper(2), "b", in_graphs=True)])
    assert owner().method(0) == 12
    assert owner.method.__doc__ == "Keras's."
    assert owner.method.__name__ == "method"


def test_properties_classes_and_new_attributes() -> None:
    owner = _owner()
    module = SimpleNamespace(__name__="keras.src.somewhere", Owner=owner)
    install(
        [
            Seam(owner, "size", lambda kept: property(lambda self: kept.fget(self) + 1), "a property"),
            Seam(owner, "shape", lambda _: property(lambda self: (2,)), "not there yet", may_lack=True),
            Seam(owner, "method", lambda kept: kept or 1, "there already", may_lack=True),
            Seam(module, "Owner", lambda kept: type("Inner", (kept,), {}), "a class"),
        ]
    )
    assert (owner().size, owner().shape, owner().method(3)) == (2, (2,), 3)
    assert module.Owner.__name__ == "Inner"
    assert Seam(module, "Owner", lambda kept: kept, "").where == "somewhere"


def test_copies_by_name_follow_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    home, other, foreign = (ModuleType(name) for name in ("pacetest.home", "pacetest.api.saved", "elsewhere.saved"))
    for module in (home, other, foreign):
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def save() -> str:
        return "kept"

    home.save = other.store = foreign.save = save  # type: ignore[attr-defined]
    install(
        [
            Seam(home, "save", lambda kept: lambda: f"a {kept()}", "a", copies=".saved"),
            Seam(home, "save", lambda kept: lambda: f"b {kept()}", "b", copies=".saved"),
        ]
    )
    assert home.save() == other.store() == "b a kept"  # type: ignore[attr-defined]
    assert foreign.save() == "kept"  # type: ignore[attr-defined]


def test_users_graphs_call_replacements_as_they_are() -> None:
    """AutoGraph would make a `tf.cond` of the branch."""
    owners = [_owner(), _owner()]

    def wrapper(kept: Any) -> Any:
        def method(self: Any, number: Any) -> Any:
            if number > 2:
                return -kept(self, number)
            return kept(self, number)

        return method

    for owner, in_graphs in zip(owners, (False, True), strict=True):
        install([Seam(owner, "method", wrapper, "a", in_graphs=in_graphs)])

    def called(owner: Any) -> Any:
        return tf.function(lambda number: owner().method(number))(tf.constant(3))

    assert int(called(owners[0])) == -3
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        called(owners[1])


SEVERAL = {
    "servers": {"GradientTape.gradient"},  # taken of shards, and noted of loops
    "pipelines": set(),
    "loops": {"BatchNormalization.call"},  # averages of replicas, and --batch-statistics local
}
"""Attributes that a process of one kind replaces twice: by a row of every process, and by one of its own."""


def test_an_attribute_is_replaced_once() -> None:
    always = _attributes(table.rows())
    assert len(always) == len(set(always))
    for kind, rows in (("servers", table.of_servers), ("pipelines", table.of_pipelines), ("loops", table.of_loops)):
        own = _attributes(rows())
        assert len(own) == len(set(own))
        assert set(own) & set(always) == SEVERAL[kind]


def _attributes(rows: list[Seam]) -> list[str]:
    return [f"{row.where}.{name}" for row in rows for name in row.names]
