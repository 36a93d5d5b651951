"""The pass: the graph of a step over the whole batch becomes the graph of one rank.

    traced graph ─► programs.py: one list of operations
                         │  for each operation, in an order in which its inputs are there:
                         │    planning.py, rules/: what it needs of its inputs, what its outputs are     (pure)
                         │    building.py: makes that of the inputs, copies the operation
                         ▼
                    an operation needs a tensor whole that this rank has only an addend or rows of: it waits.
                    When nothing else can go on, all that is waited for is exchanged at once.

So the messages of a step are as many as the longest chain of messages that depend on each other, and gradients and
metrics travel together.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from paceline.spmd import compat
from paceline.spmd.account import Account
from paceline.spmd.building import Builder, Value
from paceline.spmd.decisions import FIRST_ROW, OWN_ROWS, Need
from paceline.spmd.derived_sums import DerivedSums
from paceline.spmd.dividing import addends_stay, rows_are
from paceline.spmd.fusion import Updates, fused
from paceline.spmd.messages import Messages
from paceline.spmd.placements import Placement, R, Sharded, Spec, new_dims
from paceline.spmd.planning import Branches, Loop, Outline, Plan, Planner
from paceline.spmd.programs import Node, Order, Program, Ref, without_data
from paceline.spmd.sizes import ROWS, Size, Symbol


class Partitioner:
    """Divides graphs for one rank; remembers the programs of bodies.

    Args:
        messages: The ranks.
        updates: Who runs the updates of variables as loops; None: they stay TensorFlow's operations.
    """

    def __init__(self, messages: Messages, updates: Updates | None = None) -> None:
        self._messages = messages
        self._updates = updates
        self._planner = Planner()
        self.account = Account()
        """Of the function that was divided last: what it sends and computes."""

    def divided(self, traced: Any, rows: Sequence[bool], num_rows: int | None = None, *, outputs: Placement = R) -> Any:
        """A `tf.function` of `(all rows, first row, *own inputs)` with the outputs of `traced`.

        Args:
            traced: A concrete function, traced for a whole batch.
            rows: For each of its flat inputs, whether its first dimension is the rows of the batch.
            num_rows: How many rows the batches have for which it was traced, at least 2; None: any number.
            outputs: What this rank is to have of them.
        """

        def step(total: Any, first: Any, *own: Any) -> list[Any]:
            self.account = Account(num_rows)
            count = next(
                (tf.shape(t, out_type=tf.int64)[0] for t, divided in zip(own, rows, strict=True) if divided), total
            )
            with rows_are(num_rows):
                return self._built(traced, rows, {ROWS: total, OWN_ROWS: count, FIRST_ROW: first}, own, outputs)

        graph = traced.graph
        signature = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)]
        for placeholder, divided in zip(graph.inputs[: len(rows)], rows, strict=True):
            shape = placeholder.shape.as_list() if placeholder.shape.rank is not None else None
            if divided:
                shape = [None, *(shape or [])[1:]]
            signature.append(tf.TensorSpec(shape, placeholder.dtype))
        return tf.function(step, autograph=False, input_signature=signature)

    def built(self, traced: Any, rows: Sequence[bool], num_rows: int, own: range, given: Sequence[Any]) -> list[Any]:
        """Builds into the current graph what `traced` makes of a batch of which each rank has the same rows each time.

        Args:
            traced: A concrete function, traced for a whole batch.
            rows: For each of its flat inputs, whether its first dimension is the rows of the batch.
            num_rows: How many rows the batches have, at least 2.
            own: The numbers of this rank's rows in each batch.
            given: This rank's inputs.

        Returns:
            Own rows of the outputs. All sizes are numbers in the graph, as TensorFlow rewrites graphs by them.
        """
        self.account = Account(num_rows)
        with rows_are(num_rows):
            sizes = {ROWS: num_rows, OWN_ROWS: len(own), FIRST_ROW: own.start}
            return self._built(traced, rows, sizes, given, Sharded(0))

    def parts(
        self,
        traced: Any,
        placements: Sequence[Placement],
        place: tuple[Any, Any, Any],
        given: Sequence[Any],
    ) -> "list[Part]":
        """Builds into the current graph what this rank has of each output of `traced`, for a rank that sends nothing.

        Addends stay addends wherever an operation is linear in them.

        Args:
            traced: A concrete function, traced for a batch of any number of rows.
            placements: What this rank has of each of its flat inputs.
            place: How many rows there are in all, which of these is this rank's first one, and how many this rank has:
                tensors of int64 without dimensions.
            given: This rank's inputs.
        """
        self.account = Account()
        total, first, own = place
        with addends_stay():
            builder, values = self._values(traced, placements, {ROWS: total, OWN_ROWS: own, FIRST_ROW: first}, given)
        return [Part(self, builder, value) for value in values]

    def _built(
        self,
        traced: Any,
        rows: Sequence[bool],
        sizes: dict[Symbol, Any],
        given: Sequence[Any],
        outputs: Placement,
    ) -> list[Any]:
        builder, made = self._values(traced, [Sharded(0) if divided else R for divided in rows], sizes, given)
        return self._in_way(builder, made, [outputs] * len(made))

    def _values(
        self, traced: Any, placements: Sequence[Placement], sizes: dict[Symbol, Any], given: Sequence[Any]
    ) -> tuple[Builder, list[Value]]:
        graph = traced.graph
        builder = Builder(self._messages, sizes)
        values = []
        for placeholder, tensor, placement in zip(graph.inputs[: len(placements)], given, placements, strict=True):
            spec = _input_spec(placeholder, placement)
            self.account.inputs.append(spec)
            builder.learn(spec, tensor)
            values.append(Value(spec, tensor))
        for outside, inside in graph.captures:
            values.append(Value(_input_spec(inside, R), compat.current_graph().capture(outside)))
        return builder, self._run(builder, self._planner.program(graph), values)

    def outline(self, traced: Any, rows: Sequence[bool], num_rows: int | None = None) -> Outline:
        """What would become of the operations of a function; its arguments are those of `divided`. Builds nothing."""
        graph = traced.graph
        are_rows = [*rows, *(False for _ in graph.captures)]
        with rows_are(num_rows):
            specs = [
                _input_spec(tensor, Sharded(0) if divided else R)
                for tensor, divided in zip(graph.inputs, are_rows, strict=True)
            ]
            return self._planner.outline(self._planner.program(graph), specs)

    def without_data(self, traced: Any) -> Any:
        """A `tf.function` of no arguments that does what `traced` does without its inputs; None if that is nothing.

        Plain TensorFlow has done so when a step comes to the end of its data: seeds are drawn, steps are counted.
        """
        graph = traced.graph
        num_inputs = len(graph.inputs) - len(graph.captures)
        program = without_data(self._planner.program(graph), num_inputs)
        if not program.nodes:
            return None

        def step() -> None:
            none = tf.constant(0, tf.int64)
            builder = Builder(self._messages, {ROWS: none, OWN_ROWS: none, FIRST_ROW: none})
            values = [Value(_input_spec(placeholder, R), None) for placeholder in graph.inputs[:num_inputs]]
            for outside, inside in graph.captures:
                values.append(Value(_input_spec(inside, R), compat.current_graph().capture(outside)))
            self._run(builder, program, values)

        return tf.function(step, autograph=False, input_signature=[])

    def operations(self, traced: Any) -> Iterator[Any]:
        """The operations of a traced function, with those of its loops and branches."""
        yield from self._planner.operations(traced.graph)

    # The pass over one program

    def _run(self, builder: Builder, program: Program, given: Sequence[Value]) -> list[Value]:
        """Builds a program into the current graph."""
        if self._updates is not None:
            program = fused(program, self._updates)
        values: dict[Ref, Value] = dict(zip(program.inputs, given, strict=True))
        ends: dict[int, list[Any]] = {}
        order = Order(program)
        waiting: list[tuple[int, Any, list[Value]]] = []
        derived = DerivedSums()

        def build(number: int, plan: Plan) -> None:
            node = program.nodes[number]
            inputs = [values[ref] for ref in node.inputs]
            outputs = self._build_noted(builder, node, plan, inputs, ends)
            self.account.compute(node.op, plan, inputs, outputs)
            derived.note(node, plan, inputs, outputs)
            ends[number] = _ends(outputs)
            values.update(zip(node.outputs, outputs, strict=True))
            order.done(number)

        def take(number: int) -> None:
            node = program.nodes[number]
            inputs = [values[ref] for ref in node.inputs]
            plan = self._planner.plan(node, [value.spec for value in inputs])
            absent = [v for v, need in zip(inputs, plan.needs, strict=True) if v.needs_message(need)]
            if absent:
                waiting.append((number, plan, absent))
            else:
                build(number, plan)

        while order.ready or waiting:
            while order.ready:
                take(order.next())
            needed: dict[Value, list[Any]] = {}
            for number, _, absent in waiting:
                for value in dict.fromkeys(absent):
                    needed.setdefault(value, []).append(program.nodes[number].op)
            exchanged = builder.exchanged_first(needed)
            following = derived.among(exchanged)
            self._exchange(builder, {value: needed[value] for value in exchanged if value not in following})
            derived.build(builder, following)
            now, waiting = waiting, []
            for number, plan, absent in now:
                if set(absent) <= set(exchanged):
                    build(number, plan)
                else:  # it may need less, of what is whole now
                    take(number)
        return [values[ref] for ref in program.outputs]

    def _build_noted(
        self, builder: Builder, node: Node, plan: Plan, inputs: list[Value], ends: dict[int, list[Any]]
    ) -> list[Value]:
        """Builds a node behind those that come before it; says which it was if that fails."""
        try:
            with tf.control_dependencies([op for other in sorted(node.before) for op in ends[other]]):
                return self._build(builder, node, plan, inputs)
        except Exception as error:
            specs = ", ".join(f"{value.spec.placement} {value.spec.dims}" for value in inputs)
            error.add_note(f"while the step's {node.op.type} {node.op.name!r} of ({specs}) was divided as {plan.needs}")
            raise

    def _exchange(self, builder: Builder, needed: Mapping[Value, Sequence[Any]]) -> None:
        """Makes values whole which these operations need."""
        self.account.exchange(needed)
        builder.exchange(needed)

    def _in_way(self, builder: Builder, values: Sequence[Value], needs: Sequence[Placement]) -> list[Any]:
        self._exchange(builder, {v: [] for v, need in zip(values, needs, strict=True) if v.needs_message(need)})
        return [builder.needed(value, need, None) for value, need in zip(values, needs, strict=True)]

    def _build(self, builder: Builder, node: Node, plan: Plan, values: list[Value]) -> list[Value]:
        if isinstance(plan, Loop):
            return self._build_loop(builder, node.op, plan, values)
        if isinstance(plan, Branches):
            return self._build_branches(builder, node.op, plan, values)
        return builder.run(node.op, plan, values)

    # Branches

    def _build_branches(self, builder: Builder, op: Any, plan: Branches, values: list[Value]) -> list[Value]:
        placements = [spec.placement for spec in plan.outputs]
        given = [_as_placed(value, need) for value, need in zip(values[1:], plan.needs[1:], strict=True)]

        def side(program: Program) -> Any:
            def build() -> list[Any]:
                inner = builder.inner()
                outputs = self._run(inner, program, [value.inside() for value in given])
                tensors = [tf.identity(t) for t in self._in_way(inner, outputs, placements)]
                return tensors or [tf.constant(0)]

            return build

        which = builder.needed(values[0], R, op.inputs[0])
        if op.type in ("If", "StatelessIf"):
            tensors = tf.cond(tf.cast(which, tf.bool), side(plan.programs[0]), side(plan.programs[1]))
        else:
            tensors = tf.switch_case(which, [side(program) for program in plan.programs])
        tensors = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        results = []
        for spec, tensor in zip(plan.outputs, tensors, strict=False):
            builder.learn(spec, tensor)
            results.append(Value(spec, tensor))
        return results

    # Loops

    def _build_loop(self, builder: Builder, op: Any, plan: Loop, values: list[Value]) -> list[Value]:
        moving = [number for number, fixed in enumerate(plan.constant) if not fixed]
        start = [builder.needed(values[number], plan.states[number].placement, op.inputs[number]) for number in moving]

        def inputs(inner: Builder, tensors: Sequence[Any]) -> list[Value]:
            given = [value.inside() for value in values]
            for number, tensor in zip(moving, tensors, strict=True):
                inner.learn(plan.states[number], tensor)
                given[number] = Value(plan.states[number], tensor, values[number].origins)
            return given

        def condition(*tensors: Any) -> Any:
            inner = builder.inner()
            outputs = self._run(inner, plan.condition, inputs(inner, tensors))
            return self._in_way(inner, outputs, [R])[0]

        def body(*tensors: Any) -> list[Any]:
            inner = builder.inner()
            outputs = self._run(inner, plan.body, inputs(inner, tensors))
            placements = [plan.states[number].placement for number in moving]
            return self._in_way(inner, [outputs[number] for number in moving], placements)

        shapes = [_invariant(plan.states[number], tensor) for number, tensor in zip(moving, start, strict=True)]
        with self.account.in_loop([value.spec for value in values]):
            ends = tf.while_loop(condition, body, start, shape_invariants=shapes)
        results = list(values)
        for number, tensor in zip(moving, ends, strict=True):
            spec = plan.outputs[number]
            builder.learn(spec, tensor)
            results[number] = Value(spec, tensor)
        return results


class Part:
    """What one rank has of an output of a graph that was divided into the current one.

    Args:
        partitioner: Which has divided the graph.
        builder: Of the current graph.
        value: The output.
    """

    def __init__(self, partitioner: Partitioner, builder: Builder, value: Value) -> None:
        self._partitioner, self._builder, self._value = partitioner, builder, value

    @property
    def placement(self) -> Placement:
        """Whether this rank has all of the output, own rows, or an addend."""
        return self._value.spec.placement

    def placed(self, placement: Placement) -> Any:
        """The output in this way. A message, if it is at hand neither so nor whole."""
        (tensor,) = self._partitioner._in_way(self._builder, [self._value], [placement])
        return tensor


def _ends(outputs: list[Value]) -> list[Any]:
    """The operations that whoever must come after them waits for; of one without outputs, what was built last."""
    ends = [value.tensor.op for value in outputs if value.tensor is not None]
    return ends or [compat.current_graph().get_operations()[-1]]


def _as_placed(value: Value, need: Need) -> Value:
    """A value of which an inner graph knows that it is whole now."""
    if need == R and value.spec.placement != R:
        return Value(value.spec.placed(R), value.ways[R])
    return value


def _invariant(spec: Spec, tensor: Any) -> Any:
    if tensor.dtype in (tf.variant, tf.resource) or spec.dims is None:
        return tensor.shape if tensor.dtype in (tf.variant, tf.resource) else tf.TensorShape(None)
    shape = [size.number for size in spec.dims]
    if spec.shard is not None:
        shape[spec.shard.dim] = None
    return tf.TensorShape(shape)


def _input_spec(placeholder: Any, placement: Placement) -> Spec:
    shape = placeholder.shape
    dims = new_dims(None if shape.rank is None else shape.as_list(), placeholder.op.name)
    if placeholder.dtype in (tf.resource, tf.variant):
        return Spec(R, None if placeholder.dtype == tf.variant else dims)
    if isinstance(placement, Sharded):
        return Spec(R, dims) if dims is None else Spec(placement, (Size.of(ROWS), *dims[1:]))
    return Spec(placement, dims)
