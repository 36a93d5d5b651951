"""Splits by hand, and what a split costs."""

import pytest

from paceline.errors import ConfigurationError
from paceline.plan.costs import GradientSum, Link
from paceline.plan.profile import Layer, Profile, SharedWeights
from paceline.plan.split import Split, costs_of, cuts_of_balance, cuts_of_names

# a ─► b ─► c ─► d, and a is read by c and d, too: a skip. b and c share weights.
PROFILE = Profile(
    (
        Layer("a", 2, 4, 6, (), output_bytes=10, stash_bytes=100, parameter_bytes=8),
        Layer("b", 2, 4, 6, (0,), output_bytes=20, stash_bytes=200),
        Layer("c", 2, 4, 6, (0, 1), output_bytes=30, stash_bytes=300, weights_stash_bytes=7),
        Layer("d", 2, 4, 6, (0, 2), output_bytes=40, stash_bytes=400, slot_bytes=9, update_seconds=5),
    ),
    ties=((1, 2),),
)


def test_by_numbers() -> None:
    assert cuts_of_balance(PROFILE, [1, 3], 2) == (1, 4)


@pytest.mark.parametrize("balance", [[2], [2, 3], [0, 4], [1, 1, 2]])
def test_numbers_that_do_not_add_up(balance: list[int]) -> None:
    with pytest.raises(ConfigurationError, match=r"expected 2 numbers from 1 with the sum 4, .* \[pipeline\]"):
        cuts_of_balance(PROFILE, balance, 2)


def test_by_names() -> None:
    assert cuts_of_names(PROFILE, ["a", "c"], 3) == (1, 3, 4)


@pytest.mark.parametrize("names", [["a"], ["c", "a"], ["a", "d"], ["a", "e"], ["a", "a"]])
def test_names_that_do_not_split(names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"expected 2 names in the order of the layers, .* of a, b, c"):
        cuts_of_names(PROFILE, names, 3)


def test_ties_are_not_torn() -> None:
    for split in (lambda: cuts_of_balance(PROFILE, [2, 2], 2), lambda: cuts_of_names(PROFILE, ["b"], 2)):
        with pytest.raises(ConfigurationError, match=r"layers b, c belong together.* cuts behind b"):
            split()


def test_a_tensor_is_sent_once_to_each_chunk_that_reads_it_and_lies_there_in_the_stash() -> None:
    costs = costs_of(PROFILE, Split((1, 3, 4)), Link())
    assert costs.edge_bytes == {(0, 1): 10, (0, 2): 10, (1, 2): 30}
    assert [chunk.input_bytes for chunk in costs.chunks] == [0, 10, 40]
    assert [chunk.stash_bytes for chunk in costs.chunks] == [100, 510, 440]
    assert [chunk.forward_seconds for chunk in costs.chunks] == [2, 4, 2]
    assert (costs.chunks[1].weights_stash_bytes, costs.chunks[2].slot_bytes) == (7, 9)


def test_replicas_share_rows_and_sum_gradients() -> None:
    costs = costs_of(PROFILE, Split((1, 4), 2), Link(0.0, 4.0))
    first, second = costs.chunks
    assert (first.forward_seconds, first.inputs_seconds, first.weights_seconds, first.stash_bytes) == (1, 2, 3, 50)
    assert first.update_seconds == 2 * 1 / 2 * 8 / 4
    assert (second.forward_seconds, second.update_seconds) == (3, 5)
    assert costs.edge_bytes == {(0, 1): 5}


def test_layers_in_no_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"of which \['a'\] read from no earlier layer"):
        Profile((Layer("a", 1, 1, 1, (1,)), Layer("b", 1, 1, 1)))
    with pytest.raises(ValueError, match="received 0 layers"):
        Profile(())


SHARED = SharedWeights((0, 2, 3), parameter_bytes=60, slot_bytes=20, update_seconds=2)
"""Three of four layers have them, besides 10, 10 and 1 of their own."""

TIED = Profile(
    tuple(
        Layer(name, 1, 1, 1, (at - 1,) if at else (), parameter_bytes=70, slot_bytes=30, update_seconds=3)
        for at, name in enumerate("abcd")
    ),
    shared_weights=(SHARED,),
)


def test_shared_weights_count_once_on_a_chunk() -> None:
    """They were counted for each layer that has them."""
    [chunk] = costs_of(TIED, Split((4,)), Link()).chunks
    assert (chunk.parameter_bytes, chunk.slot_bytes, chunk.update_seconds) == (4 * 70 - 2 * 60, 4 * 30 - 2 * 20, 8)


def test_shared_weights_count_once_on_a_stage_of_several_chunks() -> None:
    """ZB-V has both ends of a model on the first stage: a tied embedding and head."""
    costs = costs_of(TIED, Split((1, 2, 3, 4)), Link(), (0, 1, 1, 0))
    assert [chunk.parameter_bytes for chunk in costs.chunks] == [70, 70, 70, 10]
    assert [chunk.slot_bytes for chunk in costs.chunks] == [30, 30, 30, 10]
    assert [chunk.update_seconds for chunk in costs.chunks] == [3, 3, 3, 1]


def test_stages_that_share_weights_sum_their_gradients() -> None:
    """The exchange was not counted, and replicas summed these gradients by themselves."""
    costs = costs_of(TIED, Split((2, 4)), Link(0.0, 4.0))
    assert costs.gradient_sums == (GradientSum((0, 1), 15.0),)  # a ring of two: 60 bytes there and back
    assert [chunk.parameter_bytes for chunk in costs.chunks] == [140, 80]
    costs = costs_of(TIED, Split((2, 4), 2), Link(0.0, 4.0))
    assert costs.gradient_sums == (GradientSum((0, 1), 22.5),)  # of four
    assert [chunk.update_seconds for chunk in costs.chunks] == [6 + 80 / 4, 4 + 20 / 4]
    assert costs_of(TIED, Split((4,), 2), Link(0.0, 4.0)).gradient_sums == ()


def test_a_tie_of_no_layer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ties \[\(0, 9\)\] of no layers"):
        Profile(TIED.layers, shared_weights=(SharedWeights((0, 9), 1),))
