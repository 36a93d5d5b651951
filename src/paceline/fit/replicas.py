"""The engine of replicas: each rank has the whole model, and computes its rows of each batch.

`tf.distribute`'s OneDevice, Mirrored and MultiWorkerMirrored strategies, and scripts that name none, train so.
"""

import logging
from collections.abc import Callable
from typing import Any, ClassVar

from paceline.comm.group import Group
from paceline.comm.world import World, current_world
from paceline.fit.building import build_from_shapes
from paceline.fit.divided_functions import DividedFunction, DividedPrediction
from paceline.fit.engine import Engine, Function
from paceline.fit.input_times import with_input_noted
from paceline.fit.run import telling_of_traces
from paceline.fit.single_batches import on_local_rows
from paceline.fit.sources.kinds import source_of
from paceline.fit.sources.source import Opened, Source
from paceline.fit.updates_in_loops import with_loops
from paceline.strategy.base import SynchronousStrategy

_LOGGER = logging.getLogger("paceline")


class Replicas(Engine):
    """See the module, and `Engine`. With one rank, steps are Keras's own."""

    strategy_class: ClassVar[type] = SynchronousStrategy
    reads_alike = True

    @property
    def world(self) -> World | None:
        """See `Engine`."""
        world: World = self.strategy.world
        return world

    @property
    def models(self) -> tuple[tuple[int, ...], ...]:
        """See `Engine`."""
        models: tuple[tuple[int, ...], ...] = self.strategy.models
        return models

    @property
    def group(self) -> Group | None:
        """See `Engine`."""
        group: Group = self.strategy.fit_group
        return group

    @property
    def replicas(self) -> Group | None:
        """See `Engine`."""
        group: Group = self.strategy.group
        return group

    @property
    def _is_divided(self) -> bool:
        return bool(self.strategy.group.size > 1)

    def on_batch(self, model: Any, method: str, arguments: dict[str, Any], by_keras: Function) -> Any:
        """See `Engine`: each rank computes its rows of the batch."""
        if not self._is_divided:
            return by_keras(**arguments)
        return on_local_rows(model, method, arguments, by_keras, self.strategy)

    def compiled(self, model: Any, jit_compile: Any, by_keras: Callable[[], Any]) -> Any:
        """See `Engine`: the step stays uncompiled where it has to talk to other ranks."""
        if not self._is_divided:
            return by_keras()
        if jit_compile not in (None, False, "auto") and self.strategy.world.is_chief:
            _LOGGER.warning(
                "jit_compile=True: XLA cannot compile a step in which %d replicas communicate; the step runs "
                "without XLA. Its numbers are the same, but for what tf.random draws, which XLA draws otherwise.",
                self.strategy.group.size,
            )
        result = by_keras()
        model.jit_compile = False  # not in what is saved with the model
        return result

    def built(self, model: Any, iterator: Any, data_batch: Any, by_keras: Callable[[], None]) -> None:
        """See `Engine`: from shapes, without a batch; all ranks begin with the chief's values."""
        build_from_shapes(model, iterator, data_batch, self.strategy)

    def function(self, model: Any, step: Function, by_keras: Function) -> Any:
        """See `Engine`: the ranks divide the step; with one rank in a launched job, its update becomes loops."""
        told = telling_of_traces(step)
        if self._is_divided:
            return DividedFunction(model, told, by_keras, self.strategy)
        if not current_world().launched:
            return by_keras(told)
        in_loops = with_loops(model, told)
        if step != model.train_step:
            return by_keras(in_loops)
        return with_input_noted(model, in_loops, by_keras, self.strategy.world.clock)

    def predict_function(self, model: Any, by_keras: Callable[[], Any]) -> Any:
        """See `Engine`: returns the rows of all ranks."""
        return DividedPrediction(model, self.strategy) if self._is_divided else by_keras()

    def source(self, opened: Opened, model: Any) -> Source:
        """See `Engine`: this rank's rows of each batch. Collective."""
        source = source_of(opened, self.strategy.group.size)
        source.share(self.strategy, model)
        return source
