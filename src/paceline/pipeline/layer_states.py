"""What a pipeline refuses of layers: assignments and draws that it would lose, complex tensors over a cut."""

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.errors import ConfigurationError
from paceline.pipeline.chunk_trace import is_floating
from paceline.pipeline.chunks import Chunk

_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterUpdate")
_DRAWS_OF_GENERATORS = ("Rng", "StatefulUniform", "StatefulRandom", "StatefulStandardNormal", "StatefulTruncated")


def refuse_trained(chunk: Chunk, assigned: Iterable[Any]) -> None:
    """Refuses assignments to weights that are trained: their values are those that the optimizer gives.

    Args:
        chunk: Of the model.
        assigned: Keras variables that its layers assign.

    Raises:
        ConfigurationError: one is trained.
    """
    if trained := [variable for variable in assigned if variable.trainable]:
        raise ConfigurationError(
            f"{_named(chunk, trained)}, which is trained. A pipeline would lose that: only the optimizer's updates of "
            "trained weights reach all micro-batches. Train without a pipeline, or without this layer. [pipeline]"
        )


def refuse_complex(chunk: Chunk) -> None:
    """Refuses complex tensors that another chunk makes: no gradients of these are sent.

    Raises:
        ConfigurationError: the chunk receives one.
    """
    found = [tensor for tensor in chunk.received if not is_floating(tensor) and "complex" in str(tensor.dtype)]
    if found:
        raise ConfigurationError(
            f"The model is cut behind {found[0]._keras_history.operation.name!r}, which makes a tensor of dtype "
            f"{found[0].dtype}: gradients of complex tensors are not sent to another stage. Cut elsewhere (balance, "
            "split_after), or hand on real and imaginary parts. [pipeline]"
        )


def refuse_effects(operations: Sequence[Any], *, is_only_one: bool) -> None:
    """Refuses assignments and draws that a pipeline would lose, or make once for each micro-batch.

    Args:
        operations: Of a chunk's step, with those of its loops and branches.
        is_only_one: Whether no batch has several micro-batches.

    Raises:
        ConfigurationError: there is one.
    """
    for op in operations:
        if op.type in _ASSIGNMENTS:
            raise ConfigurationError(
                f"A layer assigns a tf.Variable (operation {op.name}), and a pipeline could lose the assignment: make "
                "the variable with self.add_weight. [pipeline]"
            )
        if is_only_one:
            continue
        if op.type.startswith(_DRAWS_OF_GENERATORS):
            raise ConfigurationError(
                "A layer draws random numbers with a tf.random.Generator: each micro-batch would draw others than one "
                "process. Draw them with keras.random and a SeedGenerator. [pipeline]"
            )


def _named(chunk: Chunk, variables: Sequence[Any]) -> str:
    first = variables[0]
    owners = [layer.operation.name for layer in chunk.layers if any(one is first for one in layer.variables)]
    owner = f"The layer {owners[0]!r}" if owners else "A layer"
    return f"{owner} assigns its weight {first.path!r}"
