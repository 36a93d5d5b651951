"""Whether this process is the evaluator of a job. Pure."""

from collections.abc import Mapping

from paceline.cluster.launched import launched_identity
from paceline.cluster.spec import EVALUATOR
from paceline.cluster.tf_config import read_tf_config


def is_evaluator(variables: Mapping[str, str]) -> bool:
    """Whether the launcher, or without one TF_CONFIG, makes this process an evaluator.

    >>> is_evaluator({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}'})
    True
    >>> is_evaluator({})
    False

    Variables read: those of `launched_identity`, TF_CONFIG.

    Raises:
        ConfigurationError: they are wrong.
    """
    identity = launched_identity(variables)
    if identity is not None:
        return identity.task.type == EVALUATOR
    place = read_tf_config(variables)
    return place is not None and place[1].type == EVALUATOR
