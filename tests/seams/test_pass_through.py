"""Without a strategy and a job, each replacement does what it has replaced: numbers, looks, errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from programs import run_python

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("pass_through.py")

_STAGES = (
    "ParallelBatchDataset",
    "ParallelFilterDataset",
    "ParallelInterleaveDatasetV3",
    "ParallelInterleaveDatasetV4",
)
_FALLBACKS = (
    "parallel_batch_dataset",
    "parallel_filter_dataset",
    "parallel_interleave_dataset_v3",
    "parallel_interleave_dataset_v4",
    "parallel_map_dataset_v2",
)
_OPERATIONS, _EXPERIMENTAL = "ops.gen_dataset_ops", "ops.gen_experimental_dataset_ops"
_RAW, _SLOW = "only tf.raw_ops calls it", "TensorFlow calls it where its fast way to an eager operation fails"

NOT_CALLED: dict[str, str] = {
    **{f"{_OPERATIONS}.{name}": _RAW for name in (*_STAGES, "ParallelMapDatasetV2")},
    **{f"{_OPERATIONS}.{name}_eager_fallback": _SLOW for name in _FALLBACKS},
    f"{_OPERATIONS}.parallel_filter_dataset": "no dataset of TensorFlow's makes it",
    f"{_OPERATIONS}.parallel_interleave_dataset_v3": "datasets make the fourth version",
    f"{_EXPERIMENTAL}.LegacyParallelInterleaveDatasetV2": _RAW,
    f"{_EXPERIMENTAL}.ParseExampleDatasetV2": _RAW,
    f"{_EXPERIMENTAL}.legacy_parallel_interleave_dataset_v2_eager_fallback": _SLOW,
}
"""By attribute: why no call of `calls.py` reaches it."""

IN_PLACE_OF_ORIGINAL = {"PyDatasetAdapter._finite_generator": "names an item that is None, which Keras passes over"}
"""By attribute: why what takes its place does not call it."""


def _told(folder: Path, *options: str) -> Any:
    ended = run_python(SCRIPT, folder / "told.json", *options, folder=folder, limit_seconds=580)
    assert ended.code == 0, ended.output
    return json.loads((folder / "told.json").read_text())


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _told(tmp_path_factory.mktemp("pass_through"))


@pytest.fixture(scope="module")
def told_of_originals(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _told(tmp_path_factory.mktemp("with_originals"), "with-originals")


def test_calls_give_the_same(told: Any) -> None:
    assert told["results"] == {}


def test_replacements_have_the_name_and_signature_of_what_they_replace(told: Any) -> None:
    assert told["looks"] == {}


@pytest.mark.proof
def test_what_an_original_raises_arrives(told_of_originals: Any) -> None:
    assert told_of_originals["exceptions"].keys() == IN_PLACE_OF_ORIGINAL.keys()


@pytest.mark.proof
def test_each_attribute_has_a_call_or_a_reason(told_of_originals: Any) -> None:
    assert {name for name, calls in told_of_originals["reached"].items() if not calls} == NOT_CALLED.keys()
