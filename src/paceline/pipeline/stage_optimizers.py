"""A stage's optimizer, which has slots for this stage's weights only, and one for all weights, for files.

Both are made of one configuration, and know their variables by the same paths.
"""

from collections.abc import Sequence
from typing import Any

from paceline.errors import ConfigurationError
from paceline.fit.compat import trained_variables
from paceline.pipeline.deferred_variables import without_values


def build_for_stage(model: Any, trained: list[Any]) -> None:
    """Sees to it that the model's optimizer is built for these variables, of all that are trained.

    Raises:
        ConfigurationError: it has been built for others than these or all.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return
    if not optimizer.built:
        optimizer.build(trained)
        return
    built_for = list(map(id, trained_variables(getattr(optimizer, "inner_optimizer", optimizer))))
    if built_for == list(map(id, trained)):
        return
    if built_for != list(map(id, model.trainable_variables)):
        raise ConfigurationError(
            "The optimizer has been built for other weights than the model trains. Compile the model with a new "
            "optimizer. [pipeline]"
        )
    _keep_own_slots(model, optimizer, trained)


def _keep_own_slots(model: Any, optimizer: Any, trained: list[Any]) -> None:
    """The optimizer was built for all weights, by the script or as it came from a file: others' slots are let go of."""
    is_new = int(getattr(optimizer, "inner_optimizer", optimizer)._iterations) == 0
    known = {} if is_new else by_path(optimizer.variables)
    with model.distribute_strategy.scope():
        own = type(optimizer).from_config(optimizer.get_config())
        own.build(trained)
    for variable in own.variables:
        if variable.path in known:
            variable.assign(known[variable.path])
    vars(optimizer).update(vars(own))  # the script may know this object


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
            "cannot be put together: give the layers names of their own. Adafactor names its variables alike whatever "
            "the layers: use another optimizer. [pipeline]"
        )
    return dict(zip(paths, variables, strict=True))
