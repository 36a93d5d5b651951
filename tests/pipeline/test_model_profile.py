"""What the layers of a model cost: bytes, which are exact, and seconds, of which only the signs are certain here."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest

from paceline.errors import ConfigurationError
from paceline.pipeline.model_profile import profile_of
from paceline.plan.profile import Profile
from thread_groups import ThreadGroup, thread_groups

ROWS = 8


def _model() -> keras.Model:
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(50, 4, name="embedding")(tokens)
    x = keras.layers.Flatten(name="flatten")(x)
    first = keras.layers.Dense(16, activation="relu", name="first")(x)
    x = keras.layers.Dense(16, name="second")(first)
    x = keras.layers.Dropout(0.5, name="dropout")(x)
    x = keras.layers.Dense(16, name="third")(x)
    x = keras.layers.Add(name="add")([first, x])
    return keras.Model(tokens, keras.layers.Dense(3, name="last")(x))


@pytest.fixture(scope="module")
def profile() -> Profile:
    model = _model()
    model.compile("adam", "mse")
    before = [weight.numpy() for weight in model.weights]
    told: list[tuple[int, int]] = []
    found = profile_of(model, ROWS, progress=lambda done, of: told.append((done, of)))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    assert int(model.optimizer.iterations.numpy()) == 0
    assert told == [(done, 7) for done in range(7)]  # `second` and `third` are equal
    return found


def _by_name(profile: Profile) -> dict[str, Any]:
    return {layer.name: layer for layer in profile.layers}


def test_bytes_of_outputs_weights_and_slots(profile: Profile) -> None:
    layers = _by_name(profile)
    assert {name: layer.output_bytes for name, layer in layers.items()} == {
        **dict.fromkeys(("embedding", "flatten"), 4 * ROWS * 24),
        **dict.fromkeys(("first", "second", "dropout", "third", "add"), 4 * ROWS * 16),
        "last": 4 * ROWS * 3,
    }
    parameters = {"embedding": 200, "first": 24 * 16 + 16, "second": 16 * 17, "third": 16 * 17, "last": 16 * 3 + 3}
    for name, layer in layers.items():
        assert layer.parameter_bytes == 4 * parameters.get(name, 0), name
        assert layer.slot_bytes == 2 * layer.parameter_bytes, name  # Adam's two moments


def test_bytes_that_are_held_until_the_backward(profile: Profile) -> None:
    layers = _by_name(profile)
    assert layers["flatten"].stash_bytes == 0  # the embedding's memory
    assert layers["embedding"].stash_bytes >= layers["embedding"].output_bytes  # what `first` reads for W
    assert layers["first"].stash_bytes == layers["first"].output_bytes  # read by its own B, and by W of `second`
    assert layers["second"].stash_bytes == 0  # Dropout's gradient needs the mask only
    assert layers["dropout"].stash_bytes >= layers["dropout"].output_bytes + ROWS * 16  # W of `third`; the mask
    assert layers["third"].stash_bytes == 0
    assert layers["add"].stash_bytes == layers["add"].output_bytes  # W of `last`
    assert layers["last"].stash_bytes == 0
    # From B to W: what came in, and the gradient of what went out.
    assert layers["last"].weights_stash_bytes == layers["last"].output_bytes
    assert layers["add"].weights_stash_bytes == layers["add"].output_bytes


def test_seconds(profile: Profile) -> None:
    layers = _by_name(profile)
    assert profile.call_seconds > 0
    assert layers["embedding"].inputs_seconds == 0  # nobody wants gradients of tokens
    assert all(layers[name].weights_seconds == 0 for name in ("flatten", "dropout", "add"))
    assert profile.layers[2].reads == (1,)


def test_ranks_share_the_work_and_have_the_same_profile() -> None:
    model = _model()
    told: dict[int, int] = {}

    def of_rank(group: ThreadGroup) -> Profile:
        return profile_of(model, ROWS, group, progress=lambda _, of: told.update({group.rank: of}))

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(of_rank, thread_groups(2, timeout_seconds=120))
    assert one == other
    assert told == {0: 4, 1: 3}
    assert all(layer.slot_bytes == 0 for layer in one.layers)  # not compiled


def test_equal_layers_are_measured_once() -> None:
    told: list[int] = []
    model = keras.Sequential([keras.Input((8,)), *(keras.layers.Dense(8) for _ in range(6))])
    found = profile_of(model, ROWS, progress=lambda done, of: told.append(of), data=np.ones((10, 8), np.float32))
    assert told == [2, 2]  # the first one needs no B
    assert len({layer.forward_seconds for layer in found.layers[1:]}) == 1


def test_unknown_sizes_are_refused() -> None:
    tokens = keras.Input((None,), dtype="int32")
    model = keras.Model(tokens, keras.layers.Embedding(5, 2, name="words")(tokens))
    with pytest.raises(
        ConfigurationError, match=r"'words' has a tensor of shape \(None, None\).*balance.*\[pipeline\]"
    ):
        profile_of(model, ROWS)


def test_weights_that_layers_share() -> None:
    shared = keras.layers.Dense(6, use_bias=False, name="shared")
    x = keras.Input((6,))
    model = keras.Model(x, shared(keras.layers.Dense(6, name="own")(shared(x))))
    model.compile("adam", "mse")
    found = profile_of(model, ROWS)
    assert [layer.parameter_bytes for layer in found.layers] == [4 * 36, 4 * 42, 4 * 36]
    [weights] = found.shared_weights
    assert (weights.layers, weights.parameter_bytes, weights.slot_bytes) == ((0, 2), 4 * 36, 2 * 4 * 36)
    assert found.chunk_cost(0, 3).parameter_bytes == 4 * (36 + 42)
