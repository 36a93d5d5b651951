"""The corpus holds what Keras executes: every public class, and operations that can be executed again."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.spmd.corpus import ROWS, Corpus, Extent, Instance, corpus, run_whole, traced_steps
from tests.spmd.corpus.contents import Content, Items, content, kept
from tests.spmd.corpus.keras_classes import EXCUSED
from tests.spmd.corpus.steps import MODULES, public_activations, public_classes

SOME = ("layers.Dropout", "layers.LSTM", "layers.SpatialDropout1D", "metrics.AUC", "optimizers.AdamW")


@pytest.fixture(scope="module")
def some() -> Corpus:
    return corpus(*SOME, extent=Extent.FIRST)


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_every_public_class_has_a_step_or_a_reason_for_none():
    public = {name for module in MODULES for name, _ in public_classes(module)}
    public |= {name for name, _ in public_activations()}
    made = corpus(extent=Extent.FIRST)
    missing = {name: made.refusals.get(name) for name in public - made.made - set(EXCUSED)}
    assert not missing, "these classes have no step; give arguments in keras_classes.py, or a reason in EXCUSED"
    assert not set(EXCUSED) & made.made
    assert set(EXCUSED) <= public


def test_steps_run_as_tensorflow_runs_them():
    for step in traced_steps(lambda name: name.startswith(SOME), extent=Extent.FIRST):
        arguments = [*step.batch(ROWS[0]), *step.function.captured_inputs]
        by_operation = _results(arguments, partial(run_whole, step.function.graph))
        by_tensorflow = _results(arguments, step.function._inference_function.call_preflattened)
        for one, other in zip(by_operation, by_tensorflow, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=step.name)


def _results(arguments: list[tf.Tensor], run: Callable[[list[tf.Tensor]], Any]) -> list[Content]:
    """What a step gives, and what its variables hold afterwards."""
    with kept(arguments):
        return list(map(content, [*tf.nest.flatten(run(arguments)), *arguments]))


def test_operations_executed_again_give_what_they_gave(some: Corpus):
    again = [instance for instance in some.instances if instance.runs_alone and instance.random != "kernel"]
    assert len(again) > 0.8 * len(some.instances)
    for instance in again:
        _compare(instance)


def _compare(instance: Instance) -> None:
    outputs, assigned = instance.run()
    expected = [value.content for value in instance.outputs] + list(instance.assigned.values())
    for one, other in zip([*outputs, *assigned.values()], expected, strict=True):
        for array, wanted in zip(_arrays(one), _arrays(other), strict=True):
            np.testing.assert_array_equal(array, wanted, err_msg=str(instance))


def _arrays(shown: Content) -> list[np.ndarray | None]:
    return [shown.element_shape, *shown.arrays] if isinstance(shown, Items) else [shown]


def test_sizes_tell_rows_from_what_is_fixed(some: Corpus):
    products = [instance for instance in some.instances if instance.type == "MatMul"]
    shapes = [instance for instance in some.instances if instance.type == "Shape"]
    assert any(instance.outputs[0].dims[0] == ROWS for instance in products)
    assert any(few == many for instance in products for few, many in instance.outputs[0].dims)
    for instance in shapes:
        numbers = zip(instance.outputs[0].content, instance.outputs[0].with_more_rows, strict=True)
        assert tuple(numbers) == instance.inputs[0].dims


def test_inputs_of_steps_are_rows_or_captured(some: Corpus):
    steps = {item.step for item in some.inputs}
    for step in steps:
        inputs = [item for item in some.inputs if item.step == step]
        assert inputs[0].rows
        assert not any(item.rows for item in inputs if item.dtype == "resource")


def test_random_operations_are_marked(some: Corpus):
    marks = {instance.random for instance in some.instances if "Random" in instance.type}
    assert marks
    assert None not in marks
