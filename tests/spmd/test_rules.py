"""No rule claims what is not true, on the operations of Keras's own steps, with every combination of placements."""

from collections.abc import Iterable

import numpy as np
import pytest
from tests.spmd.corpus import Corpus, Extent, Instance, corpus
from tests.spmd.corpus.contents import Items
from tests.spmd.other_operations import other_operations
from tests.spmd.truth import Sizes, Wrong, check, placements

from paceline.spmd.placements import Partial
from paceline.spmd.rules.table import RULES

SOME = (
    "layers.Dense",
    "layers.Conv2D",
    "layers.DepthwiseConv1D",
    "layers.Dropout",
    "layers.GRU",
    "layers.LSTM",
    "layers.MaxPooling2D",
    "layers.MelSpectrogram",
    "layers.MultiHeadAttention",
    "layers.SpatialDropout1D",
    "metrics.AUC",
    "optimizers.AdamW",
)


def _wrong_claims(instances: Iterable[Instance]) -> list[str]:
    found = []
    for instance in instances:
        sizes = Sizes()
        specs = sizes.specs(instance) if instance.runs_alone and instance.random != "kernel" else None
        if specs is None or _is_undefined(instance):
            continue
        for given in placements(specs, instance):
            if any(isinstance(spec.placement, Partial) for spec in given) and not _is_finite(instance):
                continue  # the sum may be 0 · inf where no addend is
            try:
                check(instance, given, sizes)
            except Wrong as wrong:
                found.append(str(wrong))
    return found


def _is_undefined(instance: Instance) -> bool:
    """Whether numbers are cast to a type that does not hold them: what comes out depends on where they lie."""
    if instance.type != "Cast":
        return False
    array, target = np.asarray(instance.inputs[0].content), np.dtype(instance.outputs[0].dtype)
    if target.kind not in "iu" or array.dtype.kind != "f":
        return False
    limits = np.iinfo(target)
    return bool(np.any(~np.isfinite(array) | (array < limits.min) | (array > limits.max)))


def _is_finite(instance: Instance) -> bool:
    arrays = [np.asarray(value.content) for value in instance.inputs if not isinstance(value.content, Items)]
    return all(np.all(np.isfinite(array)) for array in arrays if array.dtype.kind in "fc")


def _assert_true(made: Corpus) -> None:
    wrong = _wrong_claims(made.instances)
    assert not wrong, "\n\n".join([f"{len(wrong)} claims are wrong", *wrong[:10]])


def test_rules_are_true_of_some_layers_metrics_and_optimizers() -> None:
    _assert_true(corpus(*SOME, extent=Extent.FIRST))


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("extent", Extent)
def test_rules_are_true_of_all_of_keras(extent: Extent) -> None:
    _assert_true(corpus(extent=extent))


def test_rules_are_true_of_operations_that_keras_does_not_have() -> None:
    _assert_true(other_operations())


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_every_rule_was_tried() -> None:
    tried = [*corpus(extent=Extent.FIRST).instances, *other_operations().instances]
    reached = {instance.type for instance in tried}
    assert set(RULES) - reached == set(), "rules that no test reaches"
