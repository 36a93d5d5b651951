"""A model in a pipeline, on one rank: its chunks, the functions of its own ones, the walk, the optimizer's update."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from paceline.comm.step_account import Totals
from paceline.errors import ConfigurationError
from paceline.pipeline import compat
from paceline.pipeline.broadcast_arrays import broadcast_to_all
from paceline.pipeline.chunk_functions import ChunkFunctions
from paceline.pipeline.chunk_trace import ChunkTrace
from paceline.pipeline.chunk_tracing import trace
from paceline.pipeline.chunks import cut
from paceline.pipeline.common_failures import raised_on_all
from paceline.pipeline.division import division_of
from paceline.pipeline.gradient_sums import GradientSums
from paceline.pipeline.layer_states import refuse_complex
from paceline.pipeline.micro_batches import rows_of_micro_batches
from paceline.pipeline.shared_weights import SharedWeights
from paceline.pipeline.stage_messages import StageMessages
from paceline.pipeline.stage_updates import asks_other_stages
from paceline.pipeline.stage_waits import waits_text
from paceline.pipeline.stage_walk import BatchEnds, StageWalk
from paceline.pipeline.variable_homes import VariableHomes
from paceline.pipeline.walked_batches import Batch
from paceline.plan.actions import Action, Compute, Operation, Plan, Receive, Send
from paceline.plan.planning import make_plan
from paceline.strategy.bridged_collectives import graph_collectives_of
from paceline.strategy.pipeline import PipelineStrategy

_models: "WeakKeyDictionary[Any, PipelinedModel]" = WeakKeyDictionary()


def pipelined(model: Any, batch_rows: int | None = None) -> "PipelinedModel":
    """The pipeline of a built model; divides the model when it is first asked for. All ranks call it together.

    The values of its variables, which another model may have used last, are where it needs them.

    Args:
        model: Built.
        batch_rows: Of the batches that are about to come; None: not known.

    Raises:
        ConfigurationError: the model cannot be divided as the strategy says.
    """
    if model not in _models:
        _models[model] = PipelinedModel(model, model.distribute_strategy, batch_rows)
    _models[model].homes.bring()
    return _models[model]


def is_divided(model: Any) -> bool:
    """Whether it is known which variables of a model are here."""
    return model in _models


def words_of_steps(model: Any, totals: Totals) -> str:
    """How long the stages of a model wait; empty: it is not divided. Not collective: the chief alone asks."""
    return _models[model].words_of_steps(totals) if model in _models else ""


def compiled_anew(model: Any) -> None:
    """Tells the pipeline of a model, if that has been divided already."""
    if model in _models:
        _models[model].compiled_anew()


class PipelinedModel:
    """What this rank has of a model.

    Args:
        model: Built. Its variables lose or get their values here.
        strategy: Its strategy.
        batch_rows: See `pipelined`.
    """

    def __init__(self, model: Any, strategy: PipelineStrategy, batch_rows: int | None) -> None:
        self._model, self._strategy = model, strategy
        division = division_of(model, strategy, batch_rows)
        self.schedule = division.schedule
        self.chunks = cut(model, division.layers, division.cuts)
        self.edges = tuple(self.chunks.edges)
        self.stage_of = self.schedule.places(strategy.stages)
        self._expected = division.expected
        self.own = [number for number, stage in enumerate(self.stage_of) if stage == strategy.stage]
        self.stages_of = self._stages_of()
        """Of each variable of the model, in the order of the layers, the stages that have it."""
        self.homes = VariableHomes(self.stages_of, strategy.pipeline, strategy.world.rank)
        self.homes.bring()
        several = {id(variable) for chunk in self.chunks.chunks for variable in chunk.of_earlier}
        self.shared_weights = SharedWeights(
            [(variable, stages) for variable, stages in self.stages_of if id(variable) in several],
            strategy,
            partial(graph_collectives_of, strategy.world),
        )
        self.variables = [variable for variable, stages in self.stages_of if strategy.stage in stages]
        """The variables of this stage."""
        self.trained = self._trained()
        """The variables of this stage that are trained, in the model's order."""
        self.gradient_sums = GradientSums()
        self._messages = StageMessages(strategy.pipeline)
        self._plans: dict[int, Plan] = {}  # by the number of batches
        self._functions: dict[tuple[bool, bool, str], dict[int, ChunkFunctions]] = {}

    def compiled_anew(self) -> None:
        """The model has been compiled: it may have other losses and metrics, and other weights are trained."""
        self.trained = self._trained()
        self._functions = {}

    def _stages_of(self) -> list[tuple[Any, tuple[int, ...]]]:
        found: dict[int, tuple[Any, set[int]]] = {}
        for chunk, stage in zip(self.chunks.chunks, self.stage_of, strict=True):
            for variable in chunk.variables:
                found.setdefault(id(variable), (variable, set()))[1].add(stage)
        return [(variable, tuple(sorted(stages))) for variable, stages in found.values()]

    def _trained(self) -> list[Any]:
        own = {id(variable) for variable in self.variables}
        return [variable for variable in self._model.trainable_variables if id(variable) in own]

    @property
    def has_outputs(self) -> bool:
        """Whether this stage has the last chunk, with the model's outputs, losses and metrics."""
        return len(self.stage_of) - 1 in self.own

    def functions(self, specs: Any, *, training: bool, losses: bool = True) -> dict[int, ChunkFunctions]:
        """Those of this stage's chunks, for data of these specs; traced when they are first asked for.

        Collective over all ranks when these specs are new.

        Raises:
            ConfigurationError: a stage cannot compute one of its chunks; then the same on all ranks.
            RuntimeError: making them has failed on another rank; there the exception itself is raised.
        """
        key = (training, losses, str(specs))
        if key not in self._functions:
            self._strategy.world.clock.tracing()
            made = {}
            versioned = training and not self.schedule.is_synchronous
            is_first = not any(known[:2] == key[:2] for known in self._functions)
            with raised_on_all(self._strategy.fit_group):
                for number in self.own:
                    chunk = self.chunks.chunks[number]
                    if training:
                        refuse_complex(chunk)
                    made[number] = ChunkFunctions(
                        trace(self._model, chunk, specs, training=training, losses=losses, versioned=versioned)
                    )
                if training:
                    self._refuse_to_wait_for_nothing([one.trace for one in made.values()])
            if training and is_first:
                self.shared_weights.agree([one.trace for one in made.values()])
            self._functions[key] = made
        return self._functions[key]

    def _refuse_to_wait_for_nothing(self, traces: list[ChunkTrace]) -> None:
        """The others' updates wait for this stage's, if the optimizer decides over all of them."""
        if asks_other_stages(self._model.optimizer) and not any(one.summed or one.looked_up for one in traces):
            names = ", ".join(layer.name for number in self.own for layer in self.chunks.chunks[number].layers)
            raise ConfigurationError(
                f"The stage with {names} has no weights to train, but the optimizer decides over the gradients of all "
                "stages (global_clipnorm, or a loss scale): give this stage a layer that is trained. [pipeline]"
            )

    def batch(self, leaves: list[Any], specs: Any, *, training: bool, losses: bool = True) -> Batch:
        """A batch of data, whole on every rank.

        Args:
            leaves: Of the data.
            specs: Their structure; see `functions` for the others.
            training: Whether it is trained.
            losses: Whether losses and metrics are wanted.
        """
        strategy, num_rows = self._strategy, int(leaves[0].shape[0])
        bounds = rows_of_micro_batches(num_rows, strategy.micro_batches, strategy.replica, strategy.replicas)
        return Batch(leaves, bounds, self.functions(specs, training=training, losses=losses))

    def walk(self, batches: Iterator[Batch], ends: BatchEnds, *, with_backward: bool, num_batches: int = 1) -> None:
        """Takes batches through this stage. Collective over the stages.

        Args:
            batches: At least one.
            ends: Is told when the stage is done with each.
            with_backward: Whether gradients are computed.
            num_batches: The most that there may be.
        """
        plan, stage, clock = self._plan(num_batches), self._strategy.stage, self._strategy.world.clock
        actions = plan.actions[stage]
        walk = StageWalk(
            plan, stage, self.chunks, batches, self._messages, self.gradient_sums, self.trained, ends, clock
        )
        walk.run(actions if with_backward else [action for action in actions if _is_forward(action)])

    def _plan(self, num_batches: int) -> Plan:
        if num_batches not in self._plans:
            strategy = self._strategy
            self._plans[num_batches] = make_plan(
                self.schedule,
                strategy.stages,
                strategy.micro_batches,
                batches=num_batches,
                edges=self.edges or None,
                recompute=strategy.recompute,
            )
        return self._plans[num_batches]

    def summed(self, numbers: list[float], num_steps: int) -> list[float]:
        """Each number, added up over all ranks, with which a step ends; the ranks' clocks go with them. Collective.

        Args:
            numbers: Of this rank.
            num_steps: How many steps end.
        """
        world, group = self._strategy.world, self._strategy.fit_group
        clocks = world.clock.tells(group.rank, group.size)
        world.clock.others_begin()
        [total] = group.all_reduce([np.array([*numbers, *clocks], np.float64)])  # nanoseconds: exact up to 104 days
        world.clock.others_ended()
        world.clock.heard(group.size, total[len(numbers) :].astype(np.int64), num_steps=num_steps)
        return [float(number) for number in total[: len(numbers)]]

    def words_of_steps(self, totals: Totals) -> str:
        """How long each stage waits for others in some steps, and was expected to."""
        return waits_text(totals, self._strategy.stages, self._strategy.replicas, self._expected)

    def packed(self, outputs: list[Any]) -> Any:
        """The flat outputs of the model, as the model returns them."""
        return compat.packed_outputs(self._model, outputs)

    def shown(self, tensors: list[Any]) -> list[Any]:
        """The last stage's arrays on all ranks, the rows of its replicas one below the other. Collective.

        Args:
            tensors: Those of the last stage; others give none.
        """
        strategy, last = self._strategy, self.stage_of[-1]
        roots = range(last * strategy.replicas, (last + 1) * strategy.replicas)
        of_roots = broadcast_to_all(tensors, strategy.fit_group, roots)
        return [np.concatenate(parts) for parts in zip(*of_roots, strict=True)]


def _is_forward(action: Action) -> bool:
    match action:
        case Compute(operation):
            return operation is Operation.FORWARD
        case Send(message) | Receive(message):
            return not message.is_gradient
    return False
