"""What a rank writes, and its record."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.store.shards import FileRecord, ShardRecord, decode_shard, is_file_name
from paceline.wire.codec import GarbledError, encode

RECORD = ShardRecord(3, (FileRecord("state.json", 2, "0" * 32), FileRecord("tensors.safetensors", 5, "a" * 32)))

BAD_NAMES = [
    *(
        "",
        "/",
        "/etc/passwd",
        "..",
        "a/../b",
        "a//b",
        "a/",
        ".hidden",
        "a/.b",
        "a\0b",
        "a\nb",
        "a\\b",
        "x" * 256,
        "\ud800",
    ),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_leave_the_folder_are_refused(name: str):
    assert not is_file_name(name)
    hostile = json.loads(encode(RECORD))
    hostile["files"].append({"name": name, "size_bytes": 1, "xxh128": "0" * 32})
    with pytest.raises(GarbledError):
        decode_shard(json.dumps(hostile).encode())


@pytest.mark.parametrize("name", ["a", "iterator/ckpt.index", "ckpt.data-00000-of-00001", "ä b"])
def test_ordinary_names_are_fine(name: str):
    assert is_file_name(name)


@given(st.text())
def test_any_name_is_judged(name: str):
    assert is_file_name(name) in (True, False)


def test_a_record_travels_as_json():
    assert decode_shard(encode(RECORD)) == RECORD
    assert RECORD.size_bytes == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("state.json"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["rank", "files", "name", "size_bytes", "xxh128"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_other_json_is_damage(value: object):
    with pytest.raises(GarbledError):
        decode_shard(encode(value))
