"""The pass: the graph of a step over the whole batch becomes the graph of one rank.

    traced graph ─► programs.py: one list of operations
                         │  for each operation, in an order in which its inputs are there:
                         │    rules/: what it needs of its inputs, and what its outputs are     (pure)
                         │    building.py: makes that of the inputs, copies the operation
                         ▼
                    an operation needs a tensor whole that this rank has only an addend or rows of: it waits.
                    When nothing else can go on, all that is waited for is exchanged at once.

So the messages of a step are as many as the longest chain of messages that depend on each other, and gradients and
metrics travel together. Branches and loops are divided by themselves: what a variable of a loop is (whole, rows,
addends) is what stays true when the body has run once more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.spmd import compat
from paceline.spmd.account import Account
from paceline.spmd.building import Builder, Value
from paceline.spmd.decisions import FIRST_ROW, OWN_ROWS, Need
from paceline.spmd.derived_sums import DerivedSums
from paceline.spmd.messages import Messages
from paceline.spmd.order import Order
from paceline.spmd.placements import Partial, Placement, R, Sharded, Spec, new_dims
from paceline.spmd.programs import Node, Program, Ref, program_of, without_data
from paceline.spmd.rules.table import decided
from paceline.spmd.sizes import ROWS, Size, rows_are
from paceline.spmd.states import Variable, either, symbols_of

LOOPS = ("While", "StatelessWhile")
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


class Partitioner:
    """Divides graphs for one rank; remembers the programs of bodies.

    Args:
        messages: The ranks.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._programs: dict[Any, Program] = {}
        self.account = Account()
        """Of the function that was divided last: what it sends and computes."""

    def divided(self, traced: Any, rows: Sequence[bool], num_rows: int | None = None) -> Any:
        """A `tf.function` of `(all rows, first row, *own inputs)` with the outputs of `traced`, which are whole.

        Args:
            traced: A concrete function, traced for a whole batch.
            rows: For each of its flat inputs, whether its first dimension is the rows of the batch.
            num_rows: How many rows the batches have for which it was traced, at least 2; None: any number.
        """
        graph = traced.graph
        program = self._program(graph)
        num_inputs = len(graph.inputs) - len(graph.captures)

        def step(total: Any, first: Any, *own: Any) -> list[Any]:
            self.account = Account(num_rows)
            with rows_are(num_rows):
                return build(total, first, own)

        def build(total: Any, first: Any, own: Sequence[Any]) -> list[Any]:
            count = next(
                (tf.shape(t, out_type=tf.int64)[0] for t, divided in zip(own, rows, strict=True) if divided), total
            )
            builder = Builder(self._messages, {ROWS: total, OWN_ROWS: count, FIRST_ROW: first})
            values = []
            for placeholder, tensor, divided in zip(graph.inputs[:num_inputs], own, rows, strict=True):
                spec = _input_spec(placeholder, divided)
                self.account.inputs.append(spec)
                builder.learn(spec, tensor)
                values.append(Value(spec, tensor))
            for outside, inside in graph.captures:
                values.append(Value(_input_spec(inside, False), compat.current_graph().capture(outside)))
            outputs = self._run(builder, program, values)
            return self._in_way(builder, outputs, [R] * len(outputs))

        signature = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)]
        for placeholder, divided in zip(graph.inputs[:num_inputs], rows, strict=True):
            shape = placeholder.shape.as_list() if placeholder.shape.rank is not None else None
            if divided:
                shape = [None, *(shape or [])[1:]]
            signature.append(tf.TensorSpec(shape, placeholder.dtype))
        return tf.function(step, autograph=False, input_signature=signature)

    def without_data(self, traced: Any) -> Any:
        """A `tf.function` of no arguments that does what `traced` does without its inputs; None if that is nothing.

        Plain TensorFlow has done so when a step comes to the end of its data: seeds are drawn, steps are counted.
        """
        graph = traced.graph
        num_inputs = len(graph.inputs) - len(graph.captures)
        program = without_data(self._program(graph), num_inputs)
        if not program.nodes:
            return None

        def step() -> None:
            none = tf.constant(0, tf.int64)
            builder = Builder(self._messages, {ROWS: none, OWN_ROWS: none, FIRST_ROW: none})
            values = [Value(_input_spec(placeholder, False), None) for placeholder in graph.inputs[:num_inputs]]
            for outside, inside in graph.captures:
                values.append(Value(_input_spec(inside, False), compat.current_graph().capture(outside)))
            self._run(builder, program, values)

        return tf.function(step, autograph=False, input_signature=[])

    def operations(self, traced: Any) -> Iterator[Any]:
        """The operations of a traced function, with those of its loops and branches."""
        yield from self._operations(traced.graph)

    def _operations(self, graph: Any) -> Iterator[Any]:
        for node in self._program(graph).nodes:
            yield node.op
            for name in _names_of_bodies(node.op):
                yield from self._operations(compat.body(node.op, name))

    def _program(self, graph: Any) -> Program:
        if graph not in self._programs:
            self._programs[graph] = program_of(graph)
        return self._programs[graph]

    # The pass over one program

    def _run(self, builder: Builder, program: Program, given: Sequence[Value]) -> list[Value]:
        """Builds a program into the current graph."""
        values: dict[Ref, Value] = dict(zip(program.inputs, given, strict=True))
        ends: dict[int, list[Any]] = {}
        order = Order(program)
        waiting: list[tuple[int, Any, list[Value]]] = []
        derived = DerivedSums()

        def build(number: int, plan: Any) -> None:
            node = program.nodes[number]
            inputs = [values[ref] for ref in node.inputs]
            outputs = self._build_noted(builder, node, plan, inputs, ends)
            self.account.compute(node.op, plan, inputs, outputs)
            derived.note(node, plan, inputs, outputs)
            ends[number] = _ends(outputs)
            values.update(zip(node.outputs, outputs, strict=True))
            order.done(number)

        while order.ready or waiting:
            while order.ready:
                number = order.next()
                node = program.nodes[number]
                inputs = [values[ref] for ref in node.inputs]
                plan = self._plan(node, [value.spec for value in inputs])
                absent = [v for v, need in zip(inputs, plan.needs, strict=True) if v.needs_message(need)]
                if absent:
                    waiting.append((number, plan, absent))
                else:
                    build(number, plan)
            needed: dict[Value, list[Any]] = {}
            for number, _, absent in waiting:
                for value in dict.fromkeys(absent):
                    needed.setdefault(value, []).append(program.nodes[number].op)
            following = derived.among(needed)
            self._exchange(builder, {value: ops for value, ops in needed.items() if value not in following})
            derived.build(builder, following)
            now, waiting = waiting, []
            for number, plan, _ in now:
                build(number, plan)
        return [values[ref] for ref in program.outputs]

    def _build_noted(
        self, builder: Builder, node: Node, plan: Any, inputs: list[Value], ends: dict[int, list[Any]]
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

    def _plan(self, node: Node, specs: Sequence[Spec]) -> Any:
        if node.op.type in LOOPS:
            return self._loop(node.op, specs)
        if node.op.type in BRANCHES:
            return self._branches(node.op, specs)
        return decided(node.op, specs)

    def _build(self, builder: Builder, node: Node, plan: Any, values: list[Value]) -> list[Value]:
        if isinstance(plan, _Loop):
            return self._build_loop(builder, node.op, plan, values)
        if isinstance(plan, _Branches):
            return self._build_branches(builder, node.op, plan, values)
        return builder.run(node.op, plan, values)

    def _outline(self, program: Program, specs: Sequence[Spec]) -> "tuple[list[Spec], set[int]]":
        """What the outputs of a program would be, and which inputs it needs whole that are not; builds nothing."""
        known: dict[Ref, Spec] = dict(zip(program.inputs, specs, strict=True))
        gathered: set[Ref] = set()
        for node in program.nodes:
            inputs = [known[ref] for ref in node.inputs]
            plan = self._plan(node, inputs)
            for ref, spec, need in zip(node.inputs, inputs, plan.needs, strict=True):
                if need == R and spec.placement != R:
                    gathered.add(ref)
            known.update(zip(node.outputs, plan.outputs, strict=True))
        whole = {number for number, ref in enumerate(program.inputs) if ref in gathered}
        return [known[ref] for ref in program.outputs], whole

    # Branches

    def _branches(self, op: Any, specs: Sequence[Spec]) -> "_Branches":
        programs = [self._program(compat.body(op, name)) for name in _names_of_bodies(op)]
        inputs = [_without_addends(spec) for spec in specs[1:]]
        sides = [self._outline(program, inputs) for program in programs]
        outside = symbols_of(inputs)
        outputs = [either(made, op.name, outside) for made in zip(*(side for side, _ in sides), strict=True)]
        return _Branches((R, *(spec.placement for spec in inputs)), tuple(outputs), tuple(programs))

    def _build_branches(self, builder: Builder, op: Any, plan: "_Branches", values: list[Value]) -> list[Value]:
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

    def _loop(self, op: Any, specs: Sequence[Spec]) -> "_Loop":
        """What each variable of a loop is: what is still true of it when the body has run once more."""
        graph = compat.body(op, op.get_attr("body").name)
        program = self._program(graph)
        constant = tuple(inside is outside for inside, outside in zip(program.inputs, program.outputs, strict=True))
        outside = symbols_of(specs)
        variables = [
            Variable(_without_addends(spec) if fixed else spec, op.name, outside)
            for spec, fixed in zip(specs, constant, strict=True)
        ]
        whole: set[int] = set()
        for _ in range(_MOST_TURNS):
            outputs, whole = self._outline(program, [variable.spec for variable in variables])
            changed = [
                variable.joined_by(output)
                for variable, output, fixed in zip(variables, outputs, constant, strict=True)
                if not fixed
            ]
            if not any(changed):
                break
        else:
            for variable, fixed in zip(variables, constant, strict=True):
                if not fixed:
                    variable.give_up()
        states = tuple(variable.spec for variable in variables)
        needs = tuple(
            R if fixed and number in whole else state.placement
            for number, (state, fixed) in enumerate(zip(states, constant, strict=True))
        )
        outputs = [
            spec if fixed else variable.after()
            for spec, variable, fixed in zip(specs, variables, constant, strict=True)
        ]
        condition = self._program(compat.body(op, op.get_attr("cond").name))
        return _Loop(needs, tuple(outputs), program, condition, constant, states)

    def _build_loop(self, builder: Builder, op: Any, plan: "_Loop", values: list[Value]) -> list[Value]:
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


def _names_of_bodies(op: Any) -> list[str]:
    """The functions of a loop or branch; of any other operation none."""
    if op.type in LOOPS:
        return [op.get_attr("cond").name, op.get_attr("body").name]
    if op.type in ("If", "StatelessIf"):
        return [op.get_attr("then_branch").name, op.get_attr("else_branch").name]
    return [function.name for function in op.get_attr("branches")] if op.type in BRANCHES else []


def _ends(outputs: list[Value]) -> list[Any]:
    """The operations that whoever must come after them waits for; of one without outputs, what was built last."""
    ends = [value.tensor.op for value in outputs if value.tensor is not None]
    return ends or [compat.current_graph().get_operations()[-1]]


_MOST_TURNS = 16
"""After so many turns in which something still changes, everything that moves in a loop is whole."""


@dataclass(frozen=True, eq=False)
class _Branches:
    needs: tuple[Need, ...]
    outputs: tuple[Spec, ...]
    programs: tuple[Program, ...]


@dataclass(frozen=True, eq=False)
class _Loop:
    needs: tuple[Need, ...]
    outputs: tuple[Spec, ...]
    body: Program
    condition: Program
    constant: tuple[bool, ...]
    states: tuple[Spec, ...]


def _without_addends(spec: Spec) -> Spec:
    return spec.placed(R) if isinstance(spec.placement, Partial) else spec


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


def _input_spec(placeholder: Any, divided: bool) -> Spec:
    shape = placeholder.shape
    dims = new_dims(None if shape.rank is None else shape.as_list(), placeholder.op.name)
    if placeholder.dtype in (tf.resource, tf.variant):
        return Spec(R, None if placeholder.dtype == tf.variant else dims)
    if divided and dims is not None:
        return Spec(Sharded(0), (Size.of(ROWS), *dims[1:]))
    return Spec(R, dims)
