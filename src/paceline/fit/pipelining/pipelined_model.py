"""A model in a pipeline, on one rank: its chunks, the functions of its own ones, the walk, the optimizer's update."""

from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from paceline.errors import ConfigurationError
from paceline.fit.pipelining import compat
from paceline.fit.pipelining.chunk_functions import ChunkFunctions
from paceline.fit.pipelining.chunk_tracing import trace
from paceline.fit.pipelining.chunks import cut
from paceline.fit.pipelining.deferred_variables import give_values, take_values
from paceline.fit.pipelining.micro_batches import rows_of_micro_batches
from paceline.fit.pipelining.model_layers import ModelLayers, layers_of
from paceline.fit.pipelining.shown_arrays import shown_to_all
from paceline.fit.pipelining.stage_messages import StageMessages
from paceline.fit.pipelining.stage_walk import Batch, ChunkSums, StageWalk
from paceline.plan.actions import Action, Compute, Operation, Plan, Receive, Send
from paceline.plan.partition import least_greatest
from paceline.plan.planning import make_plan
from paceline.plan.profile import Layer, Profile
from paceline.plan.refusals import refuse
from paceline.plan.split import cuts_of_balance, cuts_of_names
from paceline.strategy.pipeline import PipelineStrategy

_models: "WeakKeyDictionary[Any, PipelinedModel]" = WeakKeyDictionary()


def pipelined(model: Any) -> "PipelinedModel":
    """The pipeline of a built model; divides the model when it is first asked for. All ranks do that alike.

    Raises:
        ConfigurationError: the model cannot be divided as the strategy says.
    """
    if model not in _models:
        _models[model] = PipelinedModel(model, model.distribute_strategy)
    return _models[model]


class PipelinedModel:
    """What this rank has of a model.

    Args:
        model: Built. Its variables lose or get their values here.
        strategy: Its strategy.
    """

    def __init__(self, model: Any, strategy: PipelineStrategy) -> None:
        self._model, self._strategy = model, strategy
        layers = layers_of(model)
        self.cuts = _cuts(layers, strategy)
        self.chunks = cut(model, layers, self.cuts)
        self.edges = tuple(self.chunks.edges)
        self.stage_of = strategy.schedule.places(strategy.stages)
        self.own = [number for number, stage in enumerate(self.stage_of) if stage == strategy.stage]
        for chunk, stage in zip(self.chunks.chunks, self.stage_of, strict=True):
            if stage == strategy.stage:
                give_values(chunk.variables)
            else:
                take_values(chunk.variables, stage, strategy.stage, strategy.world.rank)
        self.variables = [variable for number in self.own for variable in self.chunks.chunks[number].variables]
        """The variables of this stage."""
        own = {id(variable) for variable in self.variables}
        self.trained = [variable for variable in model.trainable_variables if id(variable) in own]
        """The variables of this stage that are trained, in the model's order."""
        self._messages = StageMessages(strategy.pipeline)
        self._plans: dict[int, Plan] = {}
        self._functions: dict[Hashable, dict[int, ChunkFunctions]] = {}

    @property
    def has_outputs(self) -> bool:
        """Whether this stage has the last chunk, with the model's outputs, losses and metrics."""
        return len(self.stage_of) - 1 in self.own

    def functions(self, specs: Any, *, training: bool, losses: bool = True) -> dict[int, ChunkFunctions]:
        """Those of this stage's chunks, for data of these specs; traced when they are first asked for."""
        key = (training, losses, str(specs))
        if key not in self._functions:
            self._functions[key] = {
                number: ChunkFunctions(
                    trace(self._model, self.chunks.chunks[number], specs, training=training, losses=losses)
                )
                for number in self.own
            }
        return self._functions[key]

    def walk(
        self, functions: dict[int, ChunkFunctions], leaves: list[Any], *, with_backward: bool
    ) -> tuple[dict[int, ChunkSums], Batch]:
        """Takes a batch through this stage. Collective over the stages.

        Args:
            functions: See `functions`.
            leaves: Of the data, whole on every rank.
            with_backward: Whether gradients are computed.
        """
        strategy = self._strategy
        num_rows = int(leaves[0].shape[0])
        bounds = rows_of_micro_batches(num_rows, strategy.micro_batches, strategy.replica, strategy.replicas)
        batch = Batch(leaves, bounds)
        plan = self.plan(len(batch.bounds))
        actions = plan.actions[strategy.stage]
        walk = StageWalk(plan, strategy.stage, self.chunks, functions, self._messages, batch)
        sums = walk.run(actions if with_backward else [action for action in actions if _is_forward(action)])
        self._messages.flush()
        return sums, batch

    def plan(self, micro_batches: int) -> Plan:
        """The plan for batches of so many micro-batches."""
        if micro_batches not in self._plans:
            strategy = self._strategy
            self._plans[micro_batches] = make_plan(
                strategy.schedule, strategy.stages, micro_batches, edges=self.edges or None
            )
        return self._plans[micro_batches]

    def summed(self, numbers: list[float]) -> list[float]:
        """Each number, added up over all ranks. Collective."""
        [total] = self._strategy.fit_group.all_reduce([np.array(numbers, np.float64)])
        return [float(number) for number in total]

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
        of_roots = shown_to_all(tensors, strategy.fit_group, roots)
        return [np.concatenate(parts) for parts in zip(*of_roots, strict=True)]


def _is_forward(action: Action) -> bool:
    match action:
        case Compute(operation):
            return operation is Operation.FORWARD
        case Send(message) | Receive(message):
            return not message.is_gradient
    return False


def _cuts(layers: ModelLayers, strategy: PipelineStrategy) -> tuple[int, ...]:
    num_chunks = len(strategy.schedule.places(strategy.stages))
    num_layers = len(layers.layers)
    refuse(
        strategy.schedule,
        strategy.stages,
        strategy.micro_batches,
        num_layers=num_layers,
        world_size=strategy.world.size,
    )
    profile = Profile(tuple(Layer(one.name, 0.0, 0.0, 0.0, one.reads) for one in layers.layers), layers.ties)
    if strategy.balance is not None:
        return cuts_of_balance(profile, strategy.balance, num_chunks)
    if strategy.split_after is not None:
        return cuts_of_names(profile, strategy.split_after, num_chunks)
    found = least_greatest(profile.cuts, num_chunks, num_chunks, (1,), lambda _, first, last, __: last - first)
    if found is None:
        raise ConfigurationError(
            f"The model has no {num_chunks - 1} places between its layers where it may be cut, because layers share "
            "weights: ask for fewer stages. [pipeline]"
        )
    return found[1].cuts
