"""The engine of pipelines: each rank has some layers of the model, and a step goes through the stages."""

import os
from collections.abc import Callable
from typing import Any, ClassVar

import keras

from paceline.comm.step_account import Totals
from paceline.errors import ConfigurationError
from paceline.fit import compat
from paceline.fit.beginning import compare_over_ranks, facts_of
from paceline.fit.building import shapes_of
from paceline.fit.engine import Function
from paceline.fit.replicas import Replicas
from paceline.fit.run import Run
from paceline.pipeline import deferred_variables, stage_updates
from paceline.pipeline.built_models import build
from paceline.pipeline.deferred_variables import without_values
from paceline.pipeline.pipelined_functions import PipelinedFunction, PipelinedPrediction
from paceline.pipeline.pipelined_model import compiled_anew, words_of_steps
from paceline.pipeline.refused_models import refuse_outside_scope, refuse_xla
from paceline.pipeline.stage_parts import stage_parts
from paceline.pipeline.whole_saves import loaded_by_each, with_all_values
from paceline.resilience.parts import Part
from paceline.strategy.pipeline import PipelineStrategy
from paceline.strategy.seams import Seam


class Pipeline(Replicas):
    """See the module, and `Engine`. The ranks of one stage are replicas of it."""

    strategy_class: ClassVar[type] = PipelineStrategy
    saves_together = True
    takes_steps_here = False

    @classmethod
    def check_foreign(cls, model: Any, method: str) -> None:
        """See `Engine`: each worker would train the whole of such a model."""
        if method in ("fit", "train_on_batch"):
            refuse_outside_scope(model)

    def compiled(self, model: Any, jit_compile: Any, by_keras: Callable[[], Any]) -> Any:
        """See `Engine`: Keras would ask for XLA by itself on a GPU; afterwards all is traced anew."""
        refuse_xla(jit_compile)
        result = by_keras()
        model.jit_compile = False
        compiled_anew(model)
        return result

    def built(self, model: Any, iterator: Any, data_batch: Any, by_keras: Callable[[], None]) -> None:
        """See `Engine`: a pipeline is divided, and what is not built is built from shapes."""
        is_fitted = Run.of_fit(model) is not None and iterator is not compat.validation_iterator(model)
        batch_rows = None if iterator is None else iterator.source.description.batch_size
        if iterator is not None and is_fitted:
            facts = facts_of(model, iterator.source.description, iterator.num_batches)
            compare_over_ranks(facts, self.strategy.fit_group)
        build(model, shapes_of(iterator, data_batch), batch_rows, is_fitted=is_fitted, is_run=iterator is not None)

    def words_of_steps(self, model: Any, totals: Totals) -> str:
        """See `Engine`: how long each stage waits for others, and was expected to."""
        return words_of_steps(model, totals)

    def function(self, model: Any, step: Function, by_keras: Function) -> Any:
        """See `Engine`."""
        return PipelinedFunction(model, training=step.__name__ == "train_step")

    def predict_function(self, model: Any, by_keras: Callable[[], Any]) -> Any:
        """See `Engine`."""
        return PipelinedPrediction(model)

    def epoch_logs(self, model: Any, logs: Any, by_keras: Callable[[Any], Any]) -> Any:
        """See `Engine`: the logs of the last step are those of all steps, on every rank."""
        return logs

    def weight(self, layer: Any, add: Callable[[], Any]) -> Any:
        """See `Engine`: it gets its value when it is known whose stage it is of."""
        with without_values():
            return add()

    def parts(self, model: Any, *, speaks: bool) -> list[Part]:
        """See `Engine`: each stage has its own."""
        return stage_parts(model)

    def saved(self, model: Any, filepath: Any, write: Callable[[], Any]) -> Any:
        """See `Engine`: the chief writes, and fetches what other stages have. Collective."""
        if self._is_divided_model(model) and not isinstance(filepath, (str, os.PathLike)):
            raise ConfigurationError(
                f"Received {type(filepath).__name__} for the path; expected a path: the ranks of a pipeline save one "
                "file together. [pipeline]"
            )
        return self.with_all_values(model, write)

    def with_all_values(self, model: Any, read: Callable[[], Any]) -> Any:
        """See `Engine`: the chief reads, and fetches what other stages have. Collective."""
        if not self._is_divided_model(model):
            return read()
        with_all_values(model, self.strategy, read)
        return None

    def _is_divided_model(self, model: Any) -> bool:
        return bool(self.strategy.world.size > 1 and model.built)

    def loaded(self, model: Any, read: Callable[[], Any]) -> Any:
        """See `Engine`: each stage loads its own. Not collective."""
        return loaded_by_each(model, read)


def rows() -> list[Seam]:
    """The replacements in Keras, for processes that make a `PipelineStrategy`."""
    variable, layer = keras.Variable, keras.Layer
    elsewhere = "a stage has its own weights only"
    return [
        Seam(variable, "_initialize_with_initializer", deferred_variables.initialized, elsewhere),
        Seam(variable, "_direct_assign", deferred_variables.assigned, elsewhere),
        Seam(layer, "get_weights", deferred_variables.got, elsewhere),
        Seam(layer, "set_weights", deferred_variables.given_back, elsewhere),
        Seam(compat.BaseOptimizer, "finalize_variable_values", stage_updates.finalized, elsewhere),
    ]
