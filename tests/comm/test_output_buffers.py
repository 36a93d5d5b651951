"""Result memory is used again, but never while anybody can still see it."""

import gc
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.comm.transfers import ALIGNMENT_BYTES, OutputBuffers

_TEMPLATES = {
    "small": [np.empty(5, np.float32)],
    "pooled": [np.empty((40_000,), np.float32), np.empty((3,), np.int8), np.empty((), np.float64)],
    "of the same bytes": [np.empty((200, 200), np.int32), np.empty((3,), np.int8), np.empty((1,), np.float64)],
    "larger": [np.empty((300, 1000), np.float32)],
    "nothing": [],
    "empty": [np.empty((0, 3), np.float32)],
}
_WAYS_TO_KEEP: dict[str, Any] = {
    "itself": lambda array: array,
    "a slice": lambda array: array.reshape(-1)[-7:],
    "a view of other bytes": lambda array: array.reshape(-1).view(np.uint8)[:3],
    "transposed": lambda array: array.T,
    "a memoryview": lambda array: memoryview(array.reshape(-1)[:2]),
    "a view of a view": lambda array: array.reshape(-1)[1:][:5],
    "its base": lambda array: array.base if array.base is not None else array,
}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(_TEMPLATES)), st.sampled_from([*sorted(_WAYS_TO_KEEP), None]), st.booleans()),
        max_size=40,
    )
)
def test_memory_that_somebody_holds_is_not_handed_out(calls: list[tuple[str, str | None, bool]]) -> None:
    buffers = OutputBuffers()
    kept: list[tuple[Any, bytes]] = []
    for number, (templates, way, forget_all) in enumerate(calls):
        arrays = buffers.arrays_like(_TEMPLATES[templates])
        for array in arrays:
            array[...] = number + 1
        if way is not None:
            views = [_WAYS_TO_KEEP[way](array) for array in arrays]
            kept += [(view, np.asarray(view).tobytes()) for view in views]
            del views
        if arrays:
            del array
        del arrays
        assert all(np.asarray(view).tobytes() == then for view, then in kept)
        if forget_all:
            kept.clear()


@given(st.sampled_from(sorted(_TEMPLATES)))
def test_results_look_like_their_templates_and_lie_apart(name: str) -> None:
    arrays = OutputBuffers().arrays_like(_TEMPLATES[name])
    assert [(array.shape, array.dtype) for array in arrays] == [(one.shape, one.dtype) for one in _TEMPLATES[name]]
    assert all(array.flags.c_contiguous and array.flags.writeable for array in arrays)
    for number, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[:number])


def test_results_of_some_size_are_aligned_for_tensorflow() -> None:
    for array in OutputBuffers().arrays_like(_TEMPLATES["pooled"]):
        assert array.ctypes.data % ALIGNMENT_BYTES == 0


def test_dropped_results_are_used_again() -> None:
    buffers = OutputBuffers()
    addresses = set()
    for _ in range(20):
        [array] = buffers.arrays_like(_TEMPLATES["larger"])
        addresses.add(array.ctypes.data)
        del array
        gc.collect()
    assert len(addresses) == 1


def test_a_caller_that_keeps_everything_gets_new_memory() -> None:
    buffers = OutputBuffers()
    kept = [buffers.arrays_like(_TEMPLATES["larger"])[0] for _ in range(20)]
    assert len({array.ctypes.data for array in kept}) == 20
