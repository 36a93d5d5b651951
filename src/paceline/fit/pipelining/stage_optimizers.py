"""A stage's optimizer, which has slots for this stage's weights only, and one for all weights, for files.

Both are made of one configuration, and know their variables by the same paths.
"""

from collections.abc import Sequence
from typing import Any

from paceline.errors import ConfigurationError
from paceline.fit.compat import trained_variables
from paceline.fit.pipelining.deferred_variables import without_values


def build_for_stage(model: Any, trained: list[Any]) -> None:
    """Sees to it that the model's optimizer is built for these variables.

    Raises:
        ConfigurationError: it has been built for others.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return
    if not optimizer.built:
        optimizer.build(trained)
        return
    built_for = getattr(optimizer, "inner_optimizer", optimizer)
    if [id(variable) for variable in trained_variables(built_for)] == [id(variable) for variable in trained]:
        return
    raise ConfigurationError(
        "The optimizer has been built before the model was divided into stages, as one that comes from a file is: a "
        "pipeline cannot go on with its state yet. Load with compile=False, and compile the model anew. [pipeline]"
    )


def optimizer_of_all(model: Any) -> Any:
    """An optimizer as the model's, for all weights of all stages, whose slots have no values; None without one.

    Raises:
        ConfigurationError: its variables cannot be told apart.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not optimizer.built:
        return optimizer
    with model.distribute_strategy.scope(), without_values():
        whole = type(optimizer).from_config(optimizer.get_config())
        whole.build(model.trainable_variables)
    by_path(whole.variables)
    return whole


def by_path(variables: Sequence[Any]) -> dict[str, Any]:
    """An optimizer's variables by their paths, which are the same on whatever stage they are.

    Raises:
        ConfigurationError: two cannot be told apart.
    """
    paths = [variable.path for variable in variables]
    if len(set(paths)) < len(paths):
        raise ConfigurationError(
            f"The optimizer has several variables of one path ({max(paths, key=paths.count)}), so those of the stages "
            "cannot be put together: give the layers names of their own. [pipeline]"
        )
    return dict(zip(paths, variables, strict=True))
