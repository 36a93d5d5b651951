"""The corpus holds what Keras executes: every public class, and operations that can be executed again."""

import numpy as np
import pytest

from tests.spmd.corpus import ROWS, Corpus, Instance, corpus, run_whole, traced_steps
from tests.spmd.corpus.contents import Items, content, kept
from tests.spmd.corpus.keras_classes import EXCUSED
from tests.spmd.corpus.steps import MODULES, public_activations, public_classes

SOME = ("layers.Dropout", "layers.LSTM", "layers.SpatialDropout1D", "metrics.AUC", "optimizers.AdamW")


@pytest.fixture(scope="module")
def some() -> Corpus:
    return corpus(*SOME, options=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_public_class_has_a_step_or_a_reason_for_none():
    public = {name for module in MODULES for name, _ in public_classes(module)}
    public |= {name for name, _ in public_activations()}
    made = corpus(options=False)
    missing = {name: made.refusals.get(name) for name in public - made.made - set(EXCUSED)}
    assert not missing, "these classes have no step; give arguments in keras_classes.py, or a reason in EXCUSED"
    assert not set(EXCUSED) & made.made
    assert set(EXCUSED) <= public


def test_steps_run_as_tensorflow_runs_them():
    for step in traced_steps(lambda name: name.startswith(SOME), options=False):
        arguments = [*step.batch(ROWS[0]), *step.function.captured_inputs]
        results = []
        for run in (run_whole, lambda graph, values: step.function._inference_function.call_flat(*values)):
            with kept(arguments):
                outputs = run(step.function.graph, arguments)
                results.append([*map(content, outputs), *map(content, arguments)])
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=step.name)


def test_operations_executed_again_give_what_they_gave(some: Corpus):
    again = [instance for instance in some.instances if instance.runs_alone and instance.random != "kernel"]
    assert len(again) > 0.8 * len(some.instances)
    for instance in again:
        _compare(instance)


def _compare(instance: Instance) -> None:
    outputs, assigned = instance.run()
    for value, got in zip(instance.outputs, outputs, strict=True):
        if isinstance(value.content, Items):
            assert isinstance(got, Items)
            assert len(got.arrays) == len(value.content.arrays)
            for expected, array in zip(value.content.arrays, got.arrays, strict=True):
                np.testing.assert_array_equal(array, expected, err_msg=str(instance))
        else:
            np.testing.assert_array_equal(got, value.content, err_msg=str(instance))
    for index, expected in instance.assigned.items():
        np.testing.assert_array_equal(assigned[index], expected, err_msg=str(instance))


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
