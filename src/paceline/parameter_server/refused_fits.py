"""What cannot be dispatched to workers is refused in a sentence, before anything is scheduled."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from paceline.fit.replica import refuse_without_servers
from paceline.fit.snapshots.model_state import look_again
from paceline.fit.sources.kinds import is_dataset_function
from paceline.parameter_server.worker_data import dataset_placeholder
from paceline.strategy.compat import ON_SERVERS, own_job

_STEPS = {"fit": "steps_per_epoch", "evaluate": "steps", "predict": "steps"}


def check(model: Any, method: str, arguments: dict[str, Any], strategy: Any) -> None:
    """Checks a call of `fit`, `evaluate` or `predict`; a function in place of data becomes a dataset in its place.

    Raises:
        ValueError: workers cannot do that.
    """
    _check_model(model)
    _check_ends(arguments, "x", _STEPS[method])
    _check_ends(arguments, "validation_data", "validation_steps")
    _check_data(arguments)
    for data in ("x", "validation_data"):
        if is_dataset_function(arguments.get(data)):
            arguments[data] = dataset_placeholder(arguments[data], model, strategy)
            if method == "fit" and data == "x":
                arguments.setdefault("shuffle", False)  # Keras warns that it does not shuffle datasets


def check_not_alone(model: Any) -> None:
    """A model without a strategy, in the chief of a cluster, would train on the chief.

    Raises:
        ConfigurationError: it is one, and the script has made no strategy.
        ValueError: it is one.
    """
    if model._distribute_strategy is not None:
        return
    if any("/job:ps/" in one.name for one in tf.config.list_logical_devices()):
        raise ValueError(_outside("the model was made", "its variables lie"))
    refuse_without_servers()


def _check_data(arguments: Mapping[str, Any]) -> None:
    """Raises:
    ValueError: a dataset was made before this process joined the cluster, with which TensorFlow lost it.
    """
    for name in ("x", "validation_data"):
        dataset = arguments.get(name)
        device = tf.data.experimental.to_variant(dataset).device if isinstance(dataset, tf.data.Dataset) else ""
        if device and tf.DeviceSpec.from_string(device).job not in (None, own_job()):
            raise ValueError(
                f"{name} is a dataset that was made before the ParameterServerStrategy, and was lost when this process "
                "joined the cluster. Make the strategy first. Or start the job by `paceline run --ps`, or write "
                "`import paceline` above the first use of TensorFlow where TF_CONFIG names the cluster: then data may "
                "be made first. [before-strategy]"
            )


def _check_model(model: Any) -> None:
    """Raises:
    ValueError: the steps of `model` cannot run on workers.
    """
    if model.run_eagerly or tf.config.functions_run_eagerly():
        raise ValueError(
            "run_eagerly=True runs a step on the chief, operation by operation, but parameter servers' steps run on "
            "workers, as graphs. Leave run_eagerly out; to debug a step, train without a strategy. [eager-step]"
        )
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.weights, *(() if optimizer is None else optimizer.variables)]
    counters = {id(one._iterations) for one in look_again(model).optimizers}  # the chief's
    elsewhere = [
        one.path
        for one in variables
        if one._value is not None and not isinstance(one._value, ON_SERVERS) and id(one) not in counters
    ]
    if elsewhere:
        raise ValueError(_outside(f"variables such as {elsewhere[0]!r} were made", "they lie"))


def check_made_after_strategy(variables: Iterable[Any]) -> None:
    """What the chief keeps itself, as metrics and states of generators, must have been made in the cluster.

    Args:
        variables: Keras variables of a built model.

    Raises:
        ValueError: one was made before this process joined the cluster, with which TensorFlow lost all variables.
    """
    own = own_job()
    for variable in variables:
        value = variable._value
        if value is None or isinstance(value, ON_SERVERS):
            continue
        if tf.DeviceSpec.from_string(value.device).job not in (None, own):
            raise ValueError(
                f"the variable {variable.path!r} was made before the ParameterServerStrategy, and was lost when this "
                "process joined the cluster. Make the strategy first, and metrics and layers within "
                "`with strategy.scope():`. [outside-scope]"
            )


def _outside(what: str, which_lie: str) -> str:
    return (
        f"{what} outside of strategy.scope(), so {which_lie} on no parameter server, and workers cannot train them. "
        "Make and compile the model within `with strategy.scope():`, its layers and its optimizer, too. [outside-scope]"
    )


def _check_ends(arguments: Mapping[str, Any], data: str, steps: str) -> None:
    """Raises:
    ValueError: nothing says when an epoch over these data ends.
    """
    given = arguments.get(data)
    if arguments.get(steps) is not None:
        return
    if is_dataset_function(given):
        what = f"{data} is a function that makes a dataset on each worker"
    elif isinstance(given, tf.data.Dataset) and int(given.cardinality()) == tf.data.INFINITE_CARDINALITY:
        what = f"{data} is a dataset without end"
    else:
        return
    raise ValueError(f"{what}, so nothing says when to stop: set {steps}=… [endless-data]")
