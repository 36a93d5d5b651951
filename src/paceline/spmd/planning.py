"""What becomes of each operation of a graph, before anything is built: pure.

An operation runs as its rule says (`rules/`). Branches and loops are planned by themselves: what a variable of a loop
is (whole, rows, addends) is what stays true when the body has run once more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.spmd import compat
from paceline.spmd.decisions import Decision, Need
from paceline.spmd.fusion import FusedUpdates
from paceline.spmd.placements import Partial, R, Spec
from paceline.spmd.programs import Node, Program, Ref, program_of
from paceline.spmd.rules.table import decided
from paceline.spmd.states import Variable, either, symbols_of

LOOPS = ("While", "StatelessWhile")
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")

_MOST_TURNS = 16
"""After so many turns in which something still changes, everything that moves in a loop is whole."""


@dataclass(frozen=True, eq=False)
class Branches:
    """How an operation with branches runs on a rank.

    Args:
        needs: What each input must be.
        outputs: What the outputs are then.
        programs: Those of the branches.
    """

    needs: tuple[Need, ...]
    outputs: tuple[Spec, ...]
    programs: tuple[Program, ...]


@dataclass(frozen=True, eq=False)
class Loop:
    """How a loop runs on a rank.

    Args:
        needs: What each input must be.
        outputs: What the outputs are then.
        body: Makes the variables of a turn from those of the turn before.
        condition: Says whether there is one more turn.
        constant: For each variable, whether it is the same in all turns.
        states: What each variable is in each turn.
    """

    needs: tuple[Need, ...]
    outputs: tuple[Spec, ...]
    body: Program
    condition: Program
    constant: tuple[bool, ...]
    states: tuple[Spec, ...]


Plan = Decision | Branches | Loop


@dataclass(frozen=True, eq=False)
class Planned:
    """An operation, what is known of its inputs, and how it runs on a rank."""

    op: Any
    inputs: Sequence[Spec]
    plan: Plan


@dataclass(frozen=True, eq=False)
class Outline:
    """What would become of a program.

    Args:
        outputs: What its outputs would be.
        whole: The numbers of the inputs that it needs whole, and that are not.
        operations: Its operations, each after those that it needs, without those of loops and branches.
    """

    outputs: list[Spec]
    whole: set[int]
    operations: list[Planned]


class Planner:
    """Plans graphs; remembers the programs of bodies."""

    def __init__(self) -> None:
        self._programs: dict[Any, Program] = {}

    def program(self, graph: Any) -> Program:
        """The program of a traced graph."""
        if graph not in self._programs:
            self._programs[graph] = program_of(graph)
        return self._programs[graph]

    def operations(self, graph: Any) -> Iterator[Any]:
        """The operations of a graph, with those of its loops and branches."""
        for node in self.program(graph).nodes:
            yield node.op
            for name in _names_of_bodies(node.op):
                yield from self.operations(compat.body(node.op, name))

    def plan(self, node: Node, specs: Sequence[Spec]) -> Plan:
        """How a node runs on a rank if its inputs are such."""
        if node.op.type in LOOPS:
            return self._loop(node.op, specs)
        if node.op.type in BRANCHES:
            return self._branches(node.op, specs)
        if isinstance(node.op, FusedUpdates):
            return node.op.decision()
        return decided(node.op, specs)

    def outline(self, program: Program, specs: Sequence[Spec]) -> Outline:
        """What would become of a program if its inputs are such."""
        known: dict[Ref, Spec] = dict(zip(program.inputs, specs, strict=True))
        gathered: set[Ref] = set()
        planned: list[Planned] = []
        for node in program.nodes:
            inputs = [known[ref] for ref in node.inputs]
            plan = self.plan(node, inputs)
            planned.append(Planned(node.op, inputs, plan))
            for ref, spec, need in zip(node.inputs, inputs, plan.needs, strict=True):
                if need == R and spec.placement != R:
                    gathered.add(ref)
            known.update(zip(node.outputs, plan.outputs, strict=True))
        whole = {number for number, ref in enumerate(program.inputs) if ref in gathered}
        return Outline([known[ref] for ref in program.outputs], whole, planned)

    def _branches(self, op: Any, specs: Sequence[Spec]) -> Branches:
        programs = [self.program(compat.body(op, name)) for name in _names_of_bodies(op)]
        inputs = [_without_addends(spec) for spec in specs[1:]]
        sides = [self.outline(program, inputs).outputs for program in programs]
        outside = symbols_of(inputs)
        outputs = [either(made, op.name, outside) for made in zip(*sides, strict=True)]
        return Branches((R, *(spec.placement for spec in inputs)), tuple(outputs), tuple(programs))

    def _loop(self, op: Any, specs: Sequence[Spec]) -> Loop:
        """What each variable of a loop is: what is still true of it when the body has run once more."""
        graph = compat.body(op, op.get_attr("body").name)
        program = self.program(graph)
        constant = tuple(inside is outside for inside, outside in zip(program.inputs, program.outputs, strict=True))
        outside = symbols_of(specs)
        variables = [
            Variable(_without_addends(spec) if fixed else spec, op.name, outside)
            for spec, fixed in zip(specs, constant, strict=True)
        ]
        whole: set[int] = set()
        for _ in range(_MOST_TURNS):
            turn = self.outline(program, [variable.spec for variable in variables])
            whole = turn.whole
            changed = [
                variable.joined_by(output)
                for variable, output, fixed in zip(variables, turn.outputs, constant, strict=True)
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
        condition = self.program(compat.body(op, op.get_attr("cond").name))
        return Loop(needs, tuple(outputs), program, condition, constant, states)


def _names_of_bodies(op: Any) -> list[str]:
    """The functions of a loop or branch; of any other operation none."""
    if op.type in LOOPS:
        return [op.get_attr("cond").name, op.get_attr("body").name]
    if op.type in ("If", "StatelessIf"):
        return [op.get_attr("then_branch").name, op.get_attr("else_branch").name]
    return [function.name for function in op.get_attr("branches")] if op.type in BRANCHES else []


def _without_addends(spec: Spec) -> Spec:
    return spec.placed(R) if isinstance(spec.placement, Partial) else spec
