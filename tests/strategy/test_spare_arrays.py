"""Arrays for new values: nobody else reads them, and they come again."""

import concurrent.futures

import numpy as np

from paceline.strategy.spare_arrays import SpareArrays

KIND = ((3, 50), "float32")


def test_arrays_are_aligned_and_of_the_shape() -> None:
    arrays, addresses = SpareArrays().take([KIND, ((7,), "float64"), ((0, 4), "float32")])
    assert [(one.shape, one.dtype.name) for one in arrays] == [
        ((3, 50), "float32"),
        ((7,), "float64"),
        ((0, 4), "float32"),
    ]
    assert all(address % 64 == 0 for address in addresses)
    assert addresses[:2] == [one.ctypes.data for one in arrays[:2]]
    assert all(one.flags.c_contiguous and one.flags.writeable for one in arrays)


def test_who_holds_an_array_keeps_it() -> None:
    spare = SpareArrays()
    [first, second], _ = spare.take([KIND, KIND])
    assert not np.shares_memory(first, second)
    part = first[1]
    where = second.ctypes.data
    del first, second
    [third, fourth], _ = spare.take([KIND, KIND])
    assert not np.shares_memory(part, third)
    assert not np.shares_memory(part, fourth)
    assert where in (third.ctypes.data, fourth.ctypes.data), "nobody held it"


def test_what_many_calls_did_not_take_is_given_back() -> None:
    spare = SpareArrays()
    spare.take([KIND])
    assert spare.num_bytes() > 500
    for _ in range(600):
        spare.take([((2,), "float32")])
    assert spare.num_bytes() < 100


def test_threads_never_share_an_array() -> None:
    spare = SpareArrays()

    def use(number: int) -> bool:
        for _ in range(200):
            [array], _ = spare.take([KIND])
            array[:] = number
            if not (array == number).all():
                return False
            del array
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert all(threads.map(use, range(4)))
