"""The layers of a model as a pipeline cuts them."""

from typing import Any

import keras
import pytest

from paceline.errors import ConfigurationError
from paceline.pipeline.model_layers import ModelLayers, layers_of


def _reads(found: ModelLayers) -> dict[str, tuple[str, ...]]:
    return {layer.name: tuple(found.layers[at].name for at in layer.reads) for layer in found.layers}


def test_a_stack_of_layers() -> None:
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, name="a"),
            keras.layers.ReLU(name="b"),
            keras.layers.Dense(2, name="c"),
        ]
    )
    found = layers_of(model)
    assert _reads(found) == {"a": (), "b": ("a",), "c": ("b",)}
    assert found.ties == ()
    assert [layer.operation for layer in found.layers] == model.layers
    assert found.layers[0].inputs[0] is model.inputs[0]
    assert found.layers[1].inputs[0] is found.layers[0].outputs[0]
    assert found.layers[2].outputs[0] is model.outputs[0]
    assert [len(layer.variables) for layer in found.layers] == [2, 0, 2]


def test_skips_several_inputs_and_outputs_and_functions() -> None:
    one, other = keras.Input((4,), name="one"), keras.Input((4,), name="other")
    first = keras.layers.Dense(4, name="first")(one)
    second = keras.layers.Dense(4, name="second")(first)
    joined = keras.layers.Add(name="joined")([first, second, other])
    halves = keras.ops.split(joined, 2, axis=-1)
    product = halves[0] * halves[1]
    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(5), keras.layers.Dense(1)], name="inner")
    model = keras.Model({"one": one, "other": other}, [inner(product), second])
    found = layers_of(model)
    names = [layer.name for layer in found.layers]
    assert [*names[:3], names[-1]] == ["first", "second", "joined", "inner"]
    assert _reads(found)["joined"] == ("first", "second")
    assert [len(layer.outputs) for layer in found.layers] == [1, 1, 1, 2, 1, 1]
    assert found.layers[3].reads == (2,)
    assert found.layers[4].reads == (3,)
    assert len(found.layers[5].variables) == 4  # the model within is one layer
    assert all(read < at for at, layer in enumerate(found.layers) for read in layer.reads)


def test_what_shares_variables_is_tied() -> None:
    x = keras.Input((4,))
    shared, dropout, nothing = keras.layers.Dense(4, name="shared"), keras.layers.Dropout(0.1), keras.layers.ReLU()
    kept = keras.layers.Dense(4, name="kept")
    within = keras.Sequential([keras.Input((4,)), kept], name="within")
    y = nothing(kept(nothing(shared(x))))
    y = dropout(within(shared(dropout(y))))
    model = keras.Model(x, keras.layers.Dense(1, name="last")(y))
    found = layers_of(model)
    names = [layer.name for layer in found.layers]
    drop, relu = dropout.name, nothing.name
    assert names == [
        *("shared", relu, "kept", f"{relu} (call 2)"),
        *(drop, "shared (call 2)", "within", f"{drop} (call 2)", "last"),
    ]
    assert [[names[at] for at in tie] for tie in found.ties] == [
        [drop, f"{drop} (call 2)"],  # the state of its seed; what has no variables is free
    ]
    assert [[names[at] for at in group] for group in found.sharing] == [
        ["shared", "shared (call 2)"],
        ["kept", "within"],
        [drop, f"{drop} (call 2)"],
    ]
    model.trainable = False
    assert layers_of(model).ties == found.ties  # whether weights are trained may change


class _Subclassed(keras.Model):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x


class _WithGraphAndCall(keras.Model):  # type: ignore[misc]
    def call(self, x: Any, **kwargs: Any) -> Any:
        return super().call(x, **kwargs)


def test_refusals() -> None:
    x = keras.Input((4,))
    graph = _WithGraphAndCall(x, keras.layers.Dense(1)(x), name="graph")
    for model, words in (
        (_Subclassed(name="mine"), "'mine' has a `call` of its own"),
        (graph, "'graph' has a `call` of its own"),
        (keras.Sequential([keras.layers.Dense(1)], name="early"), "'early' is not built"),
        (keras.Model(x, x, name="empty"), "'empty' has no layers"),
        (keras.layers.Dense(1), "Received Dense; expected a Keras model"),
    ):
        with pytest.raises(ConfigurationError, match=rf"{words}.*\[pipeline\]"):
            layers_of(model)


def test_names_of_later_layers_stay() -> None:
    """Naming counters are global in Keras: a model that is made after a look at another one has plain Keras's names."""
    keras.backend.clear_session()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    layers_of(model)
    assert keras.layers.Dense(1).name == "dense_1"
    assert keras.Sequential().name == "sequential_1"
