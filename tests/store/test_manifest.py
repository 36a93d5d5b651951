"""The manifest."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.store import json_bytes
from paceline.store.catalog import Catalog
from paceline.store.folder import DamagedSnapshotError, OtherVersionError
from paceline.store.local_folder import LocalFolder
from paceline.store.manifest import MANIFEST_FILE, SnapshotMeta, manifest_bytes, parsed_manifest
from paceline.store.shards import FileRecord, ShardRecord

FILES = (FileRecord("state.json", 2, "0" * 32), FileRecord("tensors.safetensors", 5, "a" * 32))
META = SnapshotMeta(epoch=2, fit_call=1, world_size=2, notes={"hosts": ["a", "b"], "threads": 4})
PARTS = (ShardRecord(0, FILES), ShardRecord(1, FILES))
WHOLE = manifest_bytes(130, 1000.5, META, PARTS)


def _parsed(data: bytes, step: int = 130):
    return parsed_manifest(data, "step-000000000130", "/run/step-000000000130", step)


def test_it_comes_back():
    info = _parsed(WHOLE)
    assert (info.step, info.created_at_seconds, info.meta, info.shards) == (130, 1000.5, META, PARTS)
    assert (info.epoch, info.fit_call, info.world_size, info.notes) == (2, 1, 2, META.notes)
    assert info.size_bytes == 14


def test_every_flipped_bit_and_every_cut_is_damage():
    for position in range(len(WHOLE)):
        for bit in range(8):
            torn = bytearray(WHOLE)
            torn[position] ^= 1 << bit
            with pytest.raises(DamagedSnapshotError):
                _parsed(bytes(torn))
        with pytest.raises(DamagedSnapshotError):
            _parsed(WHOLE[:position])


def content() -> dict[str, object]:
    return json.loads(json_bytes.unsealed(WHOLE, "it"))


def sealed(value: dict[str, object]) -> bytes:
    return json_bytes.sealed(json_bytes.to_bytes(value, "it"))


FIELDS = [*content()]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(FIELDS), JSON)
def test_a_hostile_field_under_a_right_checksum_is_read_or_is_damage(field: str, value: object):
    if isinstance(value, dict) and "$float" in value:
        return
    with contextlib.suppress(DamagedSnapshotError):
        _parsed(sealed({**content(), field: value}))


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_named(field: str):
    less = content()
    del less[field]
    with pytest.raises(DamagedSnapshotError, match=f"missing required field `{field}`"):
        _parsed(sealed(less))


@pytest.mark.parametrize("world_size", [0, 1, 3, 10**18])
def test_parts_and_ranks_must_agree(world_size: int):
    with pytest.raises(DamagedSnapshotError, match="2 shards"):
        _parsed(sealed({**content(), "world_size": world_size}))


def test_another_step_than_the_directory_says_is_damage():
    with pytest.raises(DamagedSnapshotError, match="the directory says step 131"):
        _parsed(WHOLE, step=131)


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_is_named_and_is_no_damage(version: int, tmp_path: Path):
    """To begin anew would throw away what another Paceline can go on from."""
    data = sealed({**content(), "version": version})
    with pytest.raises(OtherVersionError, match=f"version {version}.*reads version 2"):
        _parsed(data)
    folder = LocalFolder(tmp_path)
    folder.make("step-000000000130")
    with folder.writer(f"step-000000000130/{MANIFEST_FILE}") as file:
        file.write(data)
    with pytest.raises(OSError, match=f"no snapshot could be read.*version {version}"):
        Catalog(folder).newest_intact()


def test_another_version_is_named_wherever_it_has_its_checksum():
    """Version 1 had the checksum at the end, and was read as damaged."""
    data = json.dumps({**content(), "version": 1, "sha256": "0" * 64}).encode()
    with pytest.raises(OtherVersionError, match="version 1 of the snapshot format"):
        _parsed(data)


def test_people_can_read_it():
    assert json.loads(WHOLE)["epoch"] == 2
