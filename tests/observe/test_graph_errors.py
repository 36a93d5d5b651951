"""What is told of TensorFlow's errors, by texts that TensorFlow 2.21 and Keras have written."""

import pytest

from paceline.observe.failure import describe
from paceline.observe.graph_errors import cause_in

_BY_LINE = (
    "Graph execution error:\n\nDetected at node {node} defined at (most recent call last):\n"
    '  File "<frozen runpy>", line 198, in _run_module_as_main\n\n  File "/home/train.py", line 7, in <module>\n\n'
    '  File "/home/train.py", line 5, in train_step\n\n'
)
_BY_DATA = "Graph execution error:\n\nDetected at node {node} defined at (most recent call last):\n{missing}\n"
_MISSING = "<stack traces unavailable>"
_ASSERTION = (
    "assertion failed: [labels must be below 50] [Condition x < y did not hold element-wise:] "
    "[x (Max:0) = ] [62] [y (assert_less/y:0) = ] [50]"
)
_AT = "Error in user-defined function passed to MapDataset:{} transformation with iterator: Iterator::Root::{}: "
_SERVED = (
    "Failed to get element from worker 127.0.0.1:24396: Failed to get an element, with a nonretryable error: "
    "Failed to get element: "
)
_BEHIND = "\n\t [[{{node a/Assert}}]]\n\t [[IteratorGetNext]]\n\t [[IteratorGetNext]] [Op:__inference_step_549]"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        pytest.param(
            f"{_BY_LINE.format(node='assert_less/Assert')}{_ASSERTION}"
            "\n\t [[{{node assert_less/Assert}}]] [Op:__inference_step_405]",
            _ASSERTION,
            id="in a step",
        ),
        pytest.param(
            _BY_LINE.format(node="GatherV2")
            + "2 root error(s) found.\n  (0) INVALID_ARGUMENT:  indices[10] = 10 is not in [0, 10)\n"
            "\t [[{{node GatherV2}}]]\n\t [[GatherV2/_4]]\n"
            "  (1) INVALID_ARGUMENT:  indices[10] = 10 is not in [0, 10)\n"
            "\t [[{{node GatherV2}}]]\n0 successful operations.\n0 derived errors ignored. [Op:__inference_step_1]",
            "indices[10] = 10 is not in [0, 10)",
            id="twice",
        ),
        pytest.param(
            f"{_BY_DATA.format(node='a/Assert', missing=_MISSING)}{_ASSERTION}{_BEHIND}", _ASSERTION, id="in the data"
        ),
        pytest.param(
            _BY_DATA.format(node="a/Assert", missing=_MISSING)
            + _AT.format(7, "Prefetch::AssertCardinality::Map::MapAndBatch::Unbatch::Map")
            + _ASSERTION
            + _BEHIND,
            f"in a function of the data: {_ASSERTION}",
            id="in a map",
        ),
        pytest.param(
            _BY_DATA.format(node="a/Assert", missing=_MISSING)
            + _AT.format(21, "Prefetch::Map::FlatMap[0]::Map::TakeWhile::Map")
            + _SERVED
            + _AT.format(1, "Prefetch::FlatMap[0]::Concatenate[0]::BatchV2::Map")
            + _ASSERTION
            + _BEHIND,
            f"in a function of the data: {_ASSERTION}",
            id="in a map on a data worker",
        ),
        pytest.param(
            f"{_BY_DATA.format(node='IteratorGetNext', missing=_MISSING)}{_SERVED}corrupted record at 12{_BEHIND}",
            "in a data worker: corrupted record at 12",
            id="on a data worker",
        ),
        pytest.param(
            "{{function_node __wrapped__Reshape_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
            "Input to reshape is a tensor with 0 values, but the requested shape has 4 [Op:Reshape] name: ",
            "Input to reshape is a tensor with 0 values, but the requested shape has 4",
            id="eager",
        ),
        pytest.param(
            "Exception encountered when calling L.call().\n\n\x1b[1m{{function_node __wrapped__GatherV2_device_CPU:0}} "
            "indices[0] = 9 is not in [0, 4) [Op:GatherV2]\x1b[0m\n\nArguments received by L.call():\n  • x=tf.Tensor",
            "Exception encountered when calling L.call().\nindices[0] = 9 is not in [0, 4)\n"
            "Arguments received by L.call():\n• x=tf.Tensor",
            id="in a layer of Keras",
        ),
    ],
)
def test_the_line_of_an_error_says_what_happened(message: str, cause: str) -> None:
    """It was cut behind ``Detected at node …``, before what happened."""
    kind = "tensorflow.python.framework.errors_impl.InvalidArgumentError"
    assert cause_in(f"{kind}: {message}") == f"{kind}: {cause}"


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: Dimensions must be equal, but are 4 and 3 for '{{node Mul}} = Mul[T=DT_FLOAT](x, y)'",
        "ValueError: a text\n  of several lines",
        "KeyboardInterrupt",
        "InternalError: Graph execution error:",
    ],
)
def test_other_errors_are_told_as_they_are(text: str) -> None:
    assert cause_in(text) == text


def test_the_traceback_keeps_tensorflows_words() -> None:
    """Which operation it was, and where the script has made it."""
    message = _BY_LINE.format(node="Gather") + "indices[0] = 9\n\t [[{{node Gather}}]]"
    report = describe(RuntimeError(message), None)
    assert report.exception == "RuntimeError: indices[0] = 9"
    assert "in train_step" in report.traceback
