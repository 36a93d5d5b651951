"""The state of a pipelined model as a part of a snapshot: each stage's first replica writes what the stage has.

    stage 0: variables of its layers, slots of its optimizer              ─┐
    stage 1: the same of its own, and the metrics, which it alone updates ─┴─► read by name, by stages cut anywhere

A variable of a layer is called by its number among those of all layers, in the order in which Keras runs them: that is
the same wherever the model is cut. One of an optimizer is called by its path, one of a metric by its number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.errors import ConfigurationError
from paceline.pipeline.model_layers import layers_of
from paceline.pipeline.pipelined_model import pipelined
from paceline.pipeline.stage_optimizers import by_path
from paceline.resilience.parts import Arrays, Part, Saved, Scope
from paceline.resilience.saved_variables import assign, check, described

PIECES = "model.pieces"


def stage_parts(model: Any) -> list[Part]:
    """All of a model, in place of `model_parts`.

    Args:
        model: Divided into stages before anything is captured or restored.
    """
    return [
        Part(
            PIECES,
            Scope.PIECES,
            lambda arrays: _captured(model, arrays),
            lambda saved: _restore(_known_here(model, with_metrics=True), saved),
            lambda saved: _check(_known_here(model, with_metrics=True), saved),
        )
    ]


def layers_part(model: Any) -> Part:
    """The weights of all stages, for a model that this process has as a whole, as an evaluator does."""
    found = {id(variable): variable for layer in layers_of(model).layers for variable in layer.variables}
    known = _numbered(found.values())
    return Part(
        PIECES, Scope.PIECES, lambda _: {}, lambda saved: _restore(known, saved), lambda saved: _check(known, saved)
    )


def _numbered(variables: Iterable[Any]) -> dict[str, Any]:
    return {f"layers/{number}": variable for number, variable in enumerate(variables)}


def _captured(model: Any, arrays: Arrays) -> Any:
    if model.distribute_strategy.replica != 0:
        return {}
    found = _known_here(model, with_metrics=pipelined(model).has_outputs)
    return dict(zip(found, described(found.values(), arrays), strict=True))


def _check(found: Mapping[str, Any], saved: Saved) -> None:
    written = {name: one for piece in saved.pieces for name, one in piece.state.items()}
    if missing := [variable.path for name, variable in found.items() if name not in written]:
        raise ConfigurationError(
            f"the snapshot has no {', '.join(missing[:3])}, which the script's model has: the model or the optimizer "
            "is another one. Use another snapshot directory for the new model (--snapshot-dir), or run the script that "
            "took the snapshot. [other-model]"
        )
    check(list(found.values()), [written[name] for name in found], "variable")


def _restore(known: Mapping[str, Any], saved: Saved) -> None:
    wanted = dict(known)
    for piece in saved.pieces:
        names = [name for name in piece.state if name in wanted]
        if names:
            here = Saved(piece.state, piece.read(), saved.same_ranks)
            assign([wanted.pop(name) for name in names], [piece.state[name] for name in names], here)


def _known_here(model: Any, *, with_metrics: bool) -> dict[str, Any]:
    """The variables that this rank has, by their names in a snapshot."""
    pipeline = pipelined(model)
    of_all = _numbered(variable for variable, _ in pipeline.stages_of)
    own = set(map(id, pipeline.variables))
    found = {name: variable for name, variable in of_all.items() if id(variable) in own}
    found |= {f"optimizer/{path}": variable for path, variable in by_path(model.optimizer.variables).items()}
    if with_metrics:
        found |= {f"metrics/{number}": variable for number, variable in enumerate(_of_metrics(model))}
    return found


def _of_metrics(model: Any) -> Sequence[Any]:
    return [variable for metric in model.metrics for variable in metric.variables]
