"""What stages send each other: the tensors of an edge, one message each, in order.

A receiver must know shapes. Those of a forward follow from the shapes of the data, which all ranks see (the
*signature*): tensors of a new signature are preceded, once, by their shapes. Gradients have the shapes of what they
are gradients of.

    first micro-batch of 8 rows      shapes of a, shapes of b, a, b
    any later one of 8 rows          a, b
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Array, Group, Request
from paceline.errors import DesynchronizedError

Shapes = list[tuple[int, ...]]
_Key = tuple[int, int, Hashable]


class StageMessages:
    """The messages of one rank.

    Args:
        group: The stages.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._announced: dict[_Key, Shapes] = {}
        self._heard: dict[_Key, Shapes] = {}
        self._sent: list[tuple[Request[None], Array]] = []

    def send(self, tensors: Sequence[Any], to: int, tag: int, signature: Hashable = None) -> None:
        """Begins to send; returns at once.

        Args:
            tensors: Eager ones.
            to: A stage.
            tag: The edge's.
            signature: What the shapes follow from; None: the receiver knows them.

        Raises:
            DesynchronizedError: the shapes do not follow from it.
        """
        self._forget_sent()
        arrays = [np.asarray(tensor) for tensor in tensors]  # their memory, not a copy
        if signature is not None:
            self._announce([array.shape for array in arrays], to, tag, signature)
        for array in arrays:
            self._sent.append((self._group.send(array, to, tag), array))

    def receive(self, specs: Sequence[Any], source: int, tag: int, signature: Hashable) -> "Arrival":
        """Asks for what `send` sends with this signature.

        Args:
            specs: With `dtype` and `shape`, of which only the number of axes is taken.
            source: A stage.
            tag: The edge's.
            signature: See `send`.
        """
        return Arrival(self, specs, source, tag, signature)

    def ask(self, shapes: Shapes, specs: Sequence[Any], source: int, tag: int) -> "list[Request[Array]]":
        """Asks for tensors of these shapes."""
        dtypes = [tf.as_dtype(spec.dtype).as_numpy_dtype for spec in specs]
        return [self._group.recv(shape, dtype, source, tag) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def heard(self, source: int, tag: int, signature: Hashable) -> Shapes | None:
        """The shapes that have been announced; None if they have not arrived."""
        return self._heard.get((source, tag, signature))

    def know(self, shapes: Shapes, source: int, tag: int, signature: Hashable) -> None:
        """The shapes of a signature need not be announced: this rank knows them."""
        self._heard[source, tag, signature] = shapes

    def hear(self, specs: Sequence[Any], source: int, tag: int, signature: Hashable) -> Shapes:
        """Waits for the shapes, which come with the next message."""
        headers = [self._group.recv([len(spec.shape)], np.int64, source, tag) for spec in specs]
        shapes = [tuple(int(size) for size in header.wait()) for header in headers]
        self._heard[source, tag, signature] = shapes
        return shapes

    def flush(self) -> None:
        """Waits until everything that was sent has left."""
        for request, _ in self._sent:
            request.wait()
        self._sent = []

    def _announce(self, shapes: Shapes, to: int, tag: int, signature: Hashable) -> None:
        before = self._announced.get((to, tag, signature))
        if before is None:
            self._announced[to, tag, signature] = shapes
            for shape in shapes:
                header = np.array(shape, np.int64)
                self._sent.append((self._group.send(header, to, tag), header))
        elif before != shapes:
            raise DesynchronizedError(
                f"layers made tensors of the shapes {shapes} of a micro-batch, and of another one with data of the "
                f"same shapes {before}: stages cannot send each other tensors whose shapes depend on values. "
                "[pipeline]"
            )

    def _forget_sent(self) -> None:
        for request, _ in self._sent:
            if not request.is_done():
                return
            request.wait()
            self._sent = self._sent[1:]


class Arrival:
    """Tensors that have been asked for, or will be when their shapes are known. Waited for in order for each tag."""

    def __init__(
        self, messages: StageMessages, specs: Sequence[Any], source: int, tag: int, signature: Hashable
    ) -> None:
        self._messages, self._specs = messages, specs
        self._from = source, tag, signature
        self._requests: list[Request[Array]] | None = None

    def ask_if_known(self) -> bool:
        """Asks for the tensors if their shapes are known; whether they have been asked for."""
        shapes = self._messages.heard(*self._from)
        if self._requests is None and shapes is not None:
            self._requests = self._messages.ask(shapes, self._specs, *self._from[:2])
        return self._requests is not None

    def wait(self) -> list[Any]:
        """The tensors."""
        if not self.ask_if_known():
            self._messages.hear(self._specs, *self._from)
            self.ask_if_known()
        assert self._requests is not None
        return [tf.constant(request.wait()) for request in self._requests]
