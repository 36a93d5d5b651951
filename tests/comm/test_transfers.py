"""How arrays are cut and packed: nothing lost, nothing twice, nothing over the edge."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from paceline.comm.transfers import ALIGNMENT_BYTES, HALF_BYTES, WINDOW_BYTES, Piece, aligned, plan_rounds

_LENGTHS = st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([1, 2, 4, 8, 16])), max_size=12)
_CAPACITIES = st.integers(1, 64).map(lambda lines: lines * ALIGNMENT_BYTES)


@given(_LENGTHS, _CAPACITIES)
def test_every_element_is_in_one_piece_in_order(lengths: list[tuple[int, int]], capacity: int) -> None:
    pieces = [piece for round_ in plan_rounds(lengths, capacity) for piece in round_]
    elements = [(piece.index, element) for piece in pieces for element in range(piece.start, piece.stop)]
    assert elements == [(index, element) for index, (count, _) in enumerate(lengths) for element in range(count)]


@given(_LENGTHS, _CAPACITIES)
def test_pieces_of_a_round_lie_aligned_and_apart_within_the_buffer(
    lengths: list[tuple[int, int]], capacity: int
) -> None:
    for round_ in plan_rounds(lengths, capacity):
        assert round_
        end = 0
        for piece in round_:
            assert piece.start < piece.stop
            assert piece.offset % ALIGNMENT_BYTES == 0
            assert piece.offset >= end
            end = piece.offset + (piece.stop - piece.start) * lengths[piece.index][1]
        assert end <= capacity


@given(_LENGTHS, _CAPACITIES)
def test_no_round_could_have_held_the_next_ones_first_element(lengths: list[tuple[int, int]], capacity: int) -> None:
    rounds = list(plan_rounds(lengths, capacity))
    for round_, following in itertools.pairwise(rounds):
        last, first = round_[-1], following[0]
        used = last.offset + aligned((last.stop - last.start) * lengths[last.index][1])
        assert capacity - used < lengths[first.index][1]


def test_a_large_array_takes_several_rounds() -> None:
    assert list(plan_rounds([(3, 4), (40, 4)], 128)) == [
        [Piece(0, 0, 3, 0), Piece(1, 0, 16, 64)],
        [Piece(1, 16, 40, 0)],
    ]


def test_nothing_takes_no_round() -> None:
    assert list(plan_rounds([], 128)) == []
    assert list(plan_rounds([(0, 4), (0, 8)], 128)) == []


def test_a_window_holds_two_aligned_halves() -> None:
    assert HALF_BYTES % ALIGNMENT_BYTES == 0
    assert WINDOW_BYTES % ALIGNMENT_BYTES == 0
    assert WINDOW_BYTES > 2 * HALF_BYTES
