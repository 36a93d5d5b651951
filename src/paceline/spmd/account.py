"""What the divided graph of a step sends and computes, noted while it is built (`partition.py`). Pure.

    exchange   the tensors of a message: which operations need them, how many bytes they have
    compute    an operation: how much it computes, and whether every rank computes all of it

Every rank computes all of an operation whose outputs are whole if it reads or makes a tensor with the rows of all
ranks. What every rank computes in any division of a batch, such as the update of the weights, is not counted so.

All sizes are polynomials in the number of rows, until `costs` puts in the numbers of a batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.spmd.costs import Costs, Kind, SentCosts
from paceline.spmd.decisions import Operation
from paceline.spmd.placements import R, Sharded, Spec
from paceline.spmd.sizes import ONE, ROWS, Size
from paceline.spmd.work import entries, work_of

_CALLS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


@dataclass(frozen=True, eq=False)
class Sent:
    """A tensor that ranks exchange.

    Args:
        operations: The traced operations that need it whole; none: it is an output of the step.
        kind: Whether its addends are summed or its rows are gathered.
        num_bytes: Of the whole tensor, in all turns; of a list of tensors, those of one element. Strings count nothing.
        has_rows: Whether it is as long as the batch, or longer.
    """

    operations: tuple[Operation, ...]
    kind: Kind
    num_bytes: Size
    has_rows: bool


@dataclass(frozen=True, eq=False)
class Message:
    """What ranks exchange at one moment of a step.

    Args:
        kind: A sum, rows, or what Python has returned on the chief.
        tensors: All that travels in it.
        is_in_loop: Whether there is one in each turn of a loop.
    """

    kind: Kind
    tensors: tuple[Sent, ...]
    is_in_loop: bool


class NotedValue(Protocol):
    """A tensor of a step: `building.Value`."""

    spec: Spec
    origins: frozenset[Sent]

    @property
    def tensor(self) -> Any:
        """The tensor as its spec says."""
        ...


class Account:
    """Notes what a divided step sends and computes.

    Args:
        num_rows: How many rows the batches have for which the step was traced; None: any number.
    """

    def __init__(self, num_rows: int | None = None) -> None:
        self.messages: list[Message] = []
        self.inputs: list[Spec] = []
        """Of the traced function, without what it captures."""
        self._num_rows = num_rows
        self._turns = ONE
        self._num_loops = 0
        self._total = Size.of(0)
        self._replicated = Size.of(0)
        self._whole = Size.of(0)
        self._following: dict[Sent, Size] = {}

    @contextmanager
    def in_loop(self, inputs: Sequence[Spec]) -> Iterator[None]:
        """While this lasts, what is noted happens in each turn of a loop with these inputs.

        TensorFlow's loops are given the most turns that they take. Where a script says no number, one turn is counted.
        """
        most = inputs[1].content if len(inputs) > 1 else None
        turns = most.reshape(-1)[0] if most is not None and most.size == 1 else ONE
        before, self._turns = self._turns, self._turns * (turns if turns.known and turns.number != -1 else ONE)
        self._num_loops += 1
        try:
            yield
        finally:
            self._turns = before
            self._num_loops -= 1

    def exchange(self, needed: Mapping[Any, Sequence[Operation]]) -> None:
        """These values are made whole: all addends in one message, all rows in another.

        Args:
            needed: The values (`building.Value`), and which operations need them.
        """
        sent: dict[Kind, list[Sent]] = {"sum": [], "gather": []}
        for value, operations in needed.items():
            kind: Kind = "gather" if isinstance(value.spec.placement, Sharded) else "sum"
            dtype = value.tensor.dtype if value.spec.element is None else value.spec.element
            one = Sent(tuple(operations), kind, self._num_bytes(value.spec, dtype), self._has_rows(value.spec))
            sent[kind].append(one)
            if kind == "gather" or one.has_rows:
                value.origins |= {one}
        for kind, tensors in sent.items():
            if tensors:
                self.messages.append(Message(kind, tuple(tensors), self._num_loops > 0))

    def compute(self, op: Operation, plan: Any, inputs: Sequence[NotedValue], outputs: Sequence[NotedValue]) -> None:
        """An operation is built.

        Args:
            op: As it was traced.
            plan: What was decided for it: a `Decision`, or its like for a loop or branches.
            inputs: What it reads.
            outputs: What it has made.
        """
        before = [spec.spec for spec in inputs]
        work = work_of(op, before, plan.outputs) * self._turns
        self._total += work
        whole = [value for value, need in zip(inputs, plan.needs, strict=True) if need == R]
        origins = frozenset[Sent]().union(*(value.origins for value in whole))
        if op.type in _CALLS and getattr(plan, "build", None) is not None:
            made = [self._num_bytes(spec, out.dtype) for spec, out in zip(plan.outputs, op.outputs, strict=True)]
            sent = Sent((op,), "call", sum(made, Size.of(0)), has_rows=False)
            self.messages.append(Message("call", (sent,), self._num_loops > 0))
        if is_replicated := all(spec.placement == R for spec in plan.outputs):
            self._replicated += work
        has_rows = any(self._has_rows(spec) for spec in [*(value.spec for value in whole), *plan.outputs])
        # Of a number nobody knows whether it counts rows: there only what follows from exchanged rows is sure to.
        if is_replicated and has_rows and (self._num_rows is None or origins):
            self._whole += work
            for one in origins:
                self._following[one] = self._following.get(one, Size.of(0)) + work
        for value in outputs:
            if value.spec.placement == R and not any(value is one for one in inputs):
                value.origins = origins

    def _has_rows(self, spec: Spec) -> bool:
        if self._num_rows is None:
            return any(size.number is None for size in spec.dims or ())
        return any(size.number and size.number % self._num_rows == 0 for size in spec.dims or ())

    def _num_bytes(self, spec: Spec, dtype: Any) -> Size:
        return entries(spec.dims) * self._turns * int(dtype.size)

    def costs(self, num_rows: int, shapes: Sequence[Sequence[int]] = ()) -> Costs:
        """What the step of a batch sends and computes.

        Args:
            num_rows: The rows of the whole batch, at least 1.
            shapes: Those of the flat inputs; without them, sizes that the trace leaves open are taken to be
                the number of rows.
        """
        sizes = {ROWS: num_rows}
        for spec, shape in zip(self.inputs, shapes, strict=False):
            for size, entry in zip(spec.dims or (), shape, strict=False):
                sizes.update({symbol: entry for symbol in size.symbols if size == Size.of(symbol) and symbol != ROWS})

        def number(size: Size) -> int:
            return max(int(size.value(lambda symbol: sizes.get(symbol, num_rows))), 0)

        def part(size: Size) -> float:
            return number(size) / max(number(self._total), 1)

        in_loops = sum(one.is_in_loop for one in self.messages)
        sent = tuple(
            SentCosts(
                one.operations,
                one.kind,
                number(one.num_bytes),
                part(self._following.get(one, Size.of(0))),
                one.has_rows,
            )
            for message in self.messages
            for one in message.tensors
        )
        return Costs(
            len(self.messages) - in_loops,
            in_loops,
            sent,
            number(self._total),
            part(self._whole),
            part(self._replicated),
        )
