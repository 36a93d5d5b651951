"""CopyBuffers that is kept from one snapshot to the next."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from paceline.resilience.copy_buffers import BufferPool, CopyBuffers

ARRAYS = arrays.arrays(
    st.sampled_from(["float32", "int64", "uint8", "bool"]), arrays.array_shapes(min_dims=0, max_dims=2, max_side=3)
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), ARRAYS), max_size=4))
def test_each_snapshot_is_what_was_there_whatever_the_one_before_had(snapshots):
    memory = CopyBuffers()
    for snapshot in snapshots:
        memory.begin()
        copies = {name: memory.copy(name, array) for name, array in snapshot.items()}
        memory.end()
        for name, array in snapshot.items():
            expected = array.copy()
            array[...] = 0  # as the next step does
            assert (copies[name].dtype, copies[name].shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(copies[name], expected)


def test_the_same_arrays_are_used_again():
    memory = CopyBuffers()
    at = []
    for value in (1, 2):
        memory.begin()
        at.append(memory.copy("a", np.full(3, value)))
        assert memory.copy("b", np.full(value, value)).shape == (value,)
        memory.end()
    assert at[0] is at[1]
    assert at[1].tolist() == [2, 2, 2]


def test_two_arrays_of_one_name_are_two():
    memory = CopyBuffers()
    memory.begin()
    first, second = memory.copy("a", np.ones(2)), memory.copy("a", np.zeros(2))
    assert first is not second


def test_what_is_not_needed_any_more_is_freed():
    memory = CopyBuffers()
    memory.begin()
    first = memory.copy("a", np.ones(2))
    memory.end()
    memory.begin()
    memory.end()
    memory.begin()
    assert memory.copy("a", np.ones(2)) is not first


def test_what_was_given_back_is_taken_again_until_it_is_released():
    memories = BufferPool()
    one, two = memories.take(), memories.take()
    assert one is not two
    memories.give_back(one)
    assert memories.take() is one
    memories.release()
    memories.give_back(two)  # what was still being written
    assert memories.take() not in (one, two)
