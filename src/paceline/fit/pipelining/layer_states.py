"""What a pipeline refuses of layers: assignments to weights that are trained, complex tensors over a cut."""

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.errors import ConfigurationError
from paceline.fit.pipelining.chunk_trace import is_floating
from paceline.fit.pipelining.chunks import Chunk


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


def _named(chunk: Chunk, variables: Sequence[Any]) -> str:
    first = variables[0]
    owners = [layer.operation.name for layer in chunk.layers if any(one is first for one in layer.variables)]
    owner = f"The layer {owners[0]!r}" if owners else "A layer"
    return f"{owner} assigns its weight {first.path!r}"
