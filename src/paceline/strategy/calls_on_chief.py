"""Python in the middle of a step that several ranks compute: the chief calls it, and tells the others what it returned.

    rank 0: inputs ─► the user's function ─► packed bytes ─┐                ┌─► outputs
    rank 1:                                 no bytes      ─┴─► gathered ────┴─► outputs, the same

A function that counts its calls, draws numbers or reads a clock does so as often as with one worker. What it raises is
raised on all ranks, so no rank waits for one that has failed.
"""

import pickle
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Array
from paceline.strategy import compat
from paceline.strategy.graph_collectives import GraphCollectives
from paceline.strategy.python_calls import RegisteredFunction

_KINDS = (ValueError, TypeError, StopIteration, MemoryError, NotImplementedError)
"""The exceptions that TensorFlow tells apart: each becomes an error of its own class, all others `UnknownError`."""

_Description = tuple[str, str, int | None, str, str]
"""An exception in words: module, name, the number of its kind, text, traceback."""


class CallOnChief:
    """A call of Python in a graph (`PyFunc`, `PyFuncStateless`, `EagerPyFunc`), made by rank 0 for all.

    Args:
        kind: The operation's type.
        token: Where TensorFlow has the function. A call and its gradient know each other by it.
        types: Of the outputs.
    """

    def __init__(self, kind: str, token: str, types: Sequence[tf.DType]) -> None:
        self._operation = getattr(tf.raw_ops, kind)
        self._token = token
        self._is_eager = kind == "EagerPyFunc"
        self._types = list(types)
        self._fault: BaseException | None = None
        self._calling = RegisteredFunction(self._called)
        self._telling = RegisteredFunction(self._told)

    def in_graph(self, rank: int, collectives: GraphCollectives, inputs: Sequence[Any]) -> list[Any]:
        """What the function returns on rank 0. Collective.

        Args:
            rank: This rank.
            collectives: Those of all ranks, of which each builds this.
            inputs: Whole, with one worker's values; rank 0's are used.

        Returns:
            Tensors of the given types, of unknown shapes, equal on all ranks. They fail if the function raises.
        """
        with tf.device("/device:CPU:0"):
            # As on rank 0, the answer comes after the question: a loop that draws its questions draws them one by one.
            with tf.control_dependencies(list(inputs)):
                packed = tf.zeros([0], tf.uint8)
            if rank == 0:
                [packed] = self._operation(input=list(inputs), token=self._calling.token, Tout=[tf.uint8])
            packed = collectives.all_gather(tf.ensure_shape(packed, [None]))
            # In turn: if the function has failed, no rank goes on to the next message.
            return collectives.in_turn(lambda: _as_list(self._tell(packed)))

    def _tell(self, packed: Any) -> Any:
        return tf.raw_ops.PyFunc(input=[packed], token=self._telling.token, Tout=self._types)

    def _called(self, device: str, arguments: Sequence[Any]) -> Any:
        """Calls the user's function; TensorFlow's thread of rank 0."""
        answer: tuple[_Description | None, list[Array]]
        try:
            answer = (None, _arrays(compat.python_functions(self._token, device, arguments)))
        except BaseException as fault:  # TensorFlow makes an error of the step of anything that is raised
            self._fault = fault
            answer = (_description(fault), [])
        packed = np.frombuffer(pickle.dumps(answer), np.uint8)
        if not self._is_eager:
            return [np.array(packed)]
        with tf.init_scope(), tf.device("/device:CPU:0"):
            return [tf.constant(packed)]

    def _told(self, device: str, arguments: Sequence[Array]) -> list[Array]:
        """What rank 0 has called: its arrays, or its exception; TensorFlow's thread of any rank."""
        del device
        [packed] = arguments
        fault, arrays = pickle.loads(packed.tobytes())
        if fault is not None:
            own, self._fault = self._fault, None
            raise own if own is not None else _described(*fault)
        return [np.array(array) for array in arrays]  # TensorFlow may write into what it is given


def _as_list(results: Any) -> list[Any]:
    """The tensors of an operation, or the operation itself if it has none."""
    return list(results) if isinstance(results, list | tuple) else [results]


def _arrays(returned: Any) -> list[Array]:
    """What a function has returned through TensorFlow's registry: one or several arrays or tensors, or nothing."""
    if returned is None or (isinstance(returned, np.ndarray) and returned.ndim == 0 and returned.item() is None):
        return []  # the registry makes an array of nothing
    several = returned if isinstance(returned, list | tuple) else [returned]
    return [np.asarray(_array(one)) for one in several]


def _array(one: Any) -> Any:
    if not tf.is_tensor(one):
        return one
    return np.array(one.numpy(), dtype=object if one.dtype == tf.string else None)


def _description(fault: BaseException) -> _Description:
    """An exception for other processes, which may not have its class."""
    kind = next((number for number, kind in enumerate(_KINDS) if isinstance(fault, kind)), None)
    trace = "".join(traceback.format_exception(fault))
    return type(fault).__module__, type(fault).__name__, kind, str(fault), trace


def _described(module: str, name: str, kind: int | None, text: str, trace: str) -> BaseException:
    """An exception like the one of rank 0, also to TensorFlow."""
    base = Exception if kind is None else _KINDS[kind]
    fault: BaseException = type(name, (base,), {"__module__": module})(text)
    fault.add_note(f"Raised on rank 0, which calls Python for all ranks:\n{trace}")
    return fault
