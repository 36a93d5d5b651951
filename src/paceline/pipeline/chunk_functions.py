"""The functions of a chunk: its graph (`chunk_trace.py`), cut where forward and backward meet.

    F   forward                    received ─► handed on, loss, states, stash
    B   gradients of the inputs    stash, gradients of what was handed on ─► gradients of what was received, rest
    W   gradients of the weights   stash, rest ─► added to the sums of the batch
    BW  both in one call           stash, gradients of what was handed on ─► gradients of what was received; added

R, a recomputation, is F once more. The stash is what crosses from F to the others, so its bytes are known. What follows
from weights alone is not stashed but computed again: all functions of a micro-batch have the same weights. Synchronous
schedules change none between them; in asynchronous ones they are given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.pipeline.chunk_trace import ChunkTrace
from paceline.pipeline.cut_graphs import CutGraph, behind, each_once, parted
from paceline.pipeline.micro_batches import refuse_all_rows


@dataclass(eq=False)
class Pass:
    """One micro-batch on its way through a chunk.

    Args:
        feeds: By the identity of a tensor of the graph its value: data, rows, what has been received, totals, then the
            stash.
    """

    feeds: dict[int, Any] = field(default_factory=dict)

    def feed(self, tensors: Sequence[Any], values: Iterable[Any]) -> None:
        """Remembers the values of tensors of the graph."""
        self.feeds.update(zip(map(id, tensors), values, strict=True))


class ChunkFunctions:
    """F, B, W, BW of one chunk.

    Args:
        trace: Its graph. Without gradients (a trace without training) there is F only.

    Raises:
        ConfigurationError: something needs all rows of what layers compute.
    """

    def __init__(self, trace: ChunkTrace) -> None:
        self.trace = trace
        self.is_training = trace.is_training
        """Whether a backward follows."""
        forward = [*trace.handed_on, *trace.predictions, *trace.new_states, *_some(trace.loss)]
        of_weights_fetched = [*_some(trace.added), *(tensor for pair in trace.slices for tensor in pair)]
        of_forward = behind(forward)
        of_inputs = behind(trace.received_gradients) - of_forward
        of_weights = behind(of_weights_fetched) - of_forward
        given = [*trace.data, *trace.rows, *trace.received, *trace.given, *trace.sums, *trace.states, *trace.so_far]
        needed = behind([*forward, *trace.received_gradients, *of_weights_fetched])
        used = [at for at, total in enumerate(trace.totals) if total.op in needed]
        self.totals = [trace.totals[at] for at in used]
        """Of the trace's, those that anything is computed from."""
        if refused := [trace.refused[at] for at in used if trace.refused[at]]:
            refuse_all_rows(refused[0])
        # Without the totals among what is given: of all rows each is what it stands for, also where one needs another.
        of_all = CutGraph(trace.wrapped, given)
        self._parts = of_all.function([], [trace.parts[at] for at in used]) if used else None
        graph = CutGraph(trace.wrapped, [*given, *self.totals, *trace.weights], lasting=trace.weights)
        for_inputs = graph.crossing(of_forward, of_inputs)
        for_weights = graph.crossing(of_forward, of_weights - of_inputs)
        self._stash = each_once([*for_inputs, *for_weights])
        self._forward = graph.function([], [*forward, *self._stash])
        self._both = graph.function(self._stash, [*trace.received_gradients, *of_weights_fetched])
        self._rest = graph.crossing(of_inputs, of_weights - of_inputs)
        self._inputs = graph.function(for_inputs, [*trace.received_gradients, *self._rest])
        self._weights = graph.function([*for_weights, *self._rest], of_weights_fetched)
        backward = (self._both, self._inputs, self._weights)
        self._kept = {id(feed) for function in backward for feed in function.feeds}
        self._kept_for_weights = {id(feed) for feed in self._weights.feeds}
        every = [self._forward, *backward, *([self._parts] if self._parts else [])]
        read = {id(feed) for function in every for feed in function.feeds}
        self.read_data = [at for at, tensor in enumerate(trace.data) if id(tensor) in read]
        """Which leaves of the data are read."""

    def of_all_rows(self, one: Pass) -> list[Any]:
        """The values of `totals`: `one` has the data of all rows."""
        return [] if self._parts is None else self._parts(one.feeds)

    def forward(self, one: Pass, *, is_recomputed: bool = False) -> tuple[list[Any], list[Any], list[Any], Any]:
        """F: what is handed on, the model's outputs, the new states, the share of the losses (None without any).

        Args:
            one: Keeps the stash.
            is_recomputed: Whether it keeps what F reads instead, for `recompute`.
        """
        trace = self.trace
        made = self._forward(one.feeds)
        handed_on, predictions, states, loss, stash = parted(
            made, [len(trace.handed_on), len(trace.predictions), len(trace.new_states), len(_some(trace.loss))]
        )
        if is_recomputed:
            read = {id(feed) for feed in self._forward.feeds} | self._kept
            one.feeds = {key: value for key, value in one.feeds.items() if key in read}
        else:
            self._hold(one, stash)
        return handed_on, predictions, states, loss[0] if loss else None

    def recompute(self, one: Pass) -> None:
        """R: computes the stash again, from what F has read."""
        made = self._forward(one.feeds)
        self._hold(one, made[len(made) - len(self._stash) :])

    def _hold(self, one: Pass, stash: list[Any]) -> None:
        one.feeds = {key: value for key, value in one.feeds.items() if key in self._kept}
        one.feed(self._stash, stash)

    def backward(self, one: Pass) -> tuple[list[Any], list[Any]]:
        """BW: gradients of what was received, (values, indices) of what was looked up, flat. Adds to the sums."""
        trace = self.trace
        received, _, slices = parted(self._both(one.feeds), [len(trace.received_gradients), len(_some(trace.added))])
        return received, slices

    def backward_inputs(self, one: Pass) -> list[Any]:
        """B: gradients of what was received."""
        received, rest = parted(self._inputs(one.feeds), [len(self.trace.received_gradients)])
        one.feeds = {key: value for key, value in one.feeds.items() if key in self._kept_for_weights}
        one.feed(self._rest, rest)
        return received

    def backward_weights(self, one: Pass) -> list[Any]:
        """W: (values, indices) of what was looked up, flat. Adds to the sums."""
        _, slices = parted(self._weights(one.feeds), [len(_some(self.trace.added))])
        return slices


def _some(value: Any) -> list[Any]:
    return [] if value is None else [value]
