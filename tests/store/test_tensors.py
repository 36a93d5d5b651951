"""Arrays to bytes and back."""

import contextlib
import io
import json
from collections.abc import Mapping

import ml_dtypes
import numpy
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.store.folder import DamagedSnapshotError
from paceline.store.reading import TensorHeader, read_headers
from paceline.store.tensors import Array, from_bytes, to_chunks


def to_bytes(tensors: Mapping[str, Array]) -> bytes:
    return b"".join(to_chunks(tensors))


TYPES = [
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", "complex64"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (2, 3, 4)], ids=str)
def test_every_type_and_shape_comes_back_bit_for_bit(kind: str, shape: tuple[int, ...]):
    dtype = numpy.dtype(kind)
    noise = numpy.random.default_rng(0).bytes(int(numpy.prod(shape)) * dtype.itemsize)
    raw = bytes(byte & 1 for byte in noise) if dtype.name == "bool" else noise
    array = numpy.frombuffer(raw, dtype).reshape(shape)
    back = from_bytes(to_bytes({"it": array}), "it")["it"]
    assert (back.dtype, back.shape, back.tobytes()) == (dtype, shape, raw)
    assert back.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(12).reshape(3, 4).T,
        numpy.arange(12)[::-2],
        numpy.arange(5, dtype=">i4"),
        numpy.broadcast_to(numpy.float32(2), (3, 3)),
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        numpy.float32(3),
    ],
    ids=["transposed", "backwards", "big-endian", "broadcast", "Fortran", "scalar"],
)
def test_memory_order_does_not_matter(array: numpy.ndarray):
    back = from_bytes(to_bytes({"it": array}), "it")["it"]
    assert back.shape == numpy.shape(array)
    numpy.testing.assert_array_equal(back, array)


def test_all_that_cannot_be_stored_is_named_at_once():
    tensors = {"a": numpy.array(["text"]), "b": numpy.ones(2), "c": [1.0], "d": numpy.array([None])}
    with pytest.raises(TypeError, match=r"'a': str\w*, 'c': list, 'd': object.*frombuffer"):
        to_bytes(tensors)  # type: ignore[arg-type]


def test_text_as_bytes_comes_back():
    text = "größer 🙂"
    back = from_bytes(to_bytes({"": numpy.frombuffer(text.encode(), "uint8")}), "it")
    assert back[""].tobytes().decode() == text


def test_other_programs_can_read_it():
    array = numpy.arange(6, dtype="float32").reshape(2, 3)
    numpy.testing.assert_array_equal(safetensors.numpy.load(to_bytes({"it": array}))["it"], array)


def test_it_is_the_file_that_the_library_writes():
    tensors = {"b": numpy.arange(3, dtype="int16"), "a": numpy.ones((2, 3)), "é": numpy.zeros(1, "uint8")}
    theirs, ours = (
        dict(safetensors.deserialize(data)) for data in (safetensors.numpy.save(tensors), to_bytes(tensors))
    )
    assert ours == theirs


def test_arrays_are_not_copied():
    array = numpy.ones((2, 3), "float32")
    _, chunk = to_chunks({"it": array})
    array[0, 0] = 7
    assert numpy.frombuffer(chunk, "float32")[0] == 7


def test_elements_are_aligned():
    tensors = {"a": numpy.ones(3, "uint8"), "b": numpy.ones(3, "float64"), "c": numpy.ones(1, "float32")}
    data = to_bytes(tensors)
    header_bytes = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:header_bytes])
    assert all((header_bytes + header[name]["data_offsets"][0]) % tensors[name].itemsize == 0 for name in tensors)


def test_headers_tell_types_and_shapes():
    data = to_bytes({"a": numpy.ones((2, 3), "float32"), "b": numpy.ones((), ml_dtypes.bfloat16)})
    assert read_headers(io.BytesIO(data), "it") == {
        "a": TensorHeader("F32", (2, 3), 24),
        "b": TensorHeader("BF16", (), 2),
    }


HEADER = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**65) | st.text(max_size=3) | st.sampled_from(["F32", "BOOL", "I64"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "w", "__metadata__"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(HEADER, st.binary(max_size=16))
def test_a_hostile_header_is_damage(header: object, rest: bytes):
    text = json.dumps(header).encode()
    _reads_or_is_damage(len(text).to_bytes(8, "little") + text + rest)


@given(st.integers(0), st.integers(0, 255), st.integers(0))
def test_a_changed_or_cut_file_is_read_or_is_damage(position: int, byte: int, end: int):
    data = bytearray(to_bytes({"w": numpy.ones((2, 2), "float32"), "b": numpy.ones(3, "int64")}))
    data[position % len(data)] = byte
    _reads_or_is_damage(bytes(data))
    _reads_or_is_damage(bytes(data[: end % len(data)]))


def _reads_or_is_damage(data: bytes) -> None:
    for read in (lambda: from_bytes(data, "it"), lambda: read_headers(io.BytesIO(data), "it")):
        with contextlib.suppress(DamagedSnapshotError):
            read()
