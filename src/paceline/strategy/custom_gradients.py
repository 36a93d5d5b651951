"""Gradients of Python's own (`tf.custom_gradient`) live as long as the graphs that they are in.

TensorFlow registers such a gradient under a name when an operation with it is traced, and never forgets it. The
gradient holds tensors, these hold their graph, and the graph its functions in the runtime. Every optimizer of Keras has
one, in what sums gradients over replicas, so each trained model left its graphs behind: 23 MB in plain Keras for six
layers, several times as much where the step is divided and compared, too.

    registry ──name──► forwarder ··weak··► gradient ◄── the graph with the operation, and each graph around it

Those around, too: a graph within another one is copied, with the names, and may be gone before its copies.
"""

import weakref
from collections.abc import Callable
from typing import Any

from paceline.strategy import compat

Function = Callable[..., Any]

_PREFIX = "CustomGradient-"
_KEPT_BY = "_paceline_custom_gradients"


def registered(register: Function) -> Function:
    """TensorFlow's `RegisterGradient.__call__`, after which a custom gradient does not outlive its graphs."""

    def __call__(self: Any, gradient: Function) -> Function:  # noqa: N807
        graphs = compat.function_graphs()
        if not graphs or not self._op_type.startswith(_PREFIX):
            return register(self, gradient)  # type: ignore[no-any-return]  # TensorFlow is untyped
        for graph in graphs:
            if not hasattr(graph, _KEPT_BY):
                setattr(graph, _KEPT_BY, [])
            getattr(graph, _KEPT_BY).append(gradient)
        of_graph = weakref.ref(gradient)

        def forwarded(operation: Any, *upstream: Any) -> Any:
            kept = of_graph()
            assert kept is not None, "an operation outlives all graphs that it was traced in"
            return kept(operation, *upstream)

        register(self, forwarded)
        weakref.finalize(gradient, compat.forget_gradient, self._op_type).atexit = False
        return gradient

    return __call__
