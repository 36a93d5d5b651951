"""What layers assign to their weights: which assignments micro-batches compute as whole batches do, and which not.

Every micro-batch begins with the states of its batch, and the last one's are kept. So a state that follows from states
and weights alone (a counter of steps, a generator of seeds) is that of one process; one that follows from the rows is
that of the last rows only. BatchNormalization's are averaged, metrics go from one micro-batch to the next.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.errors import ConfigurationError
from paceline.fit.pipelining.chunk_trace import ChunkTrace, is_floating
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


def refuse_of_rows(chunk: Chunk, trace: ChunkTrace) -> None:
    """Refuses states that follow from rows, where a batch has several micro-batches.

    Args:
        chunk: Of the model.
        trace: Its.

    Raises:
        ConfigurationError: there is one.
    """
    others = {id(variable) for variable in (*trace.averaged, *trace.threaded)}
    of_rows = [
        variable
        for variable, state in zip(trace.assigned, trace.new_states, strict=True)
        if id(variable) not in others
        and _is_reached([state], from_=[*trace.data, *trace.rows, *trace.received], past=trace.totals)
    ]
    if of_rows:
        raise ConfigurationError(
            f"{_named(chunk, of_rows)}, computed from the rows. Each micro-batch has a part of them only, and a "
            "pipeline would keep what the last one assigns. Take PipelineStrategy(micro_batches=1) with a worker for "
            "each stage, train without a pipeline, or without this layer. [pipeline]"
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


def _is_reached(tensors: Sequence[Any], *, from_: Sequence[Any], past: Sequence[Any]) -> bool:
    """Whether `tensors` are computed from the values of others; sums over the batch (`past`) belong to all rows."""
    begins, known = {one.op for one in from_}, {one.op for one in past}
    left = [tensor.op for tensor in tensors]
    while left:
        if (operation := left.pop()) in begins:
            return True
        if operation not in known:
            known.add(operation)
            left += [tensor.op for tensor in operation.inputs]
    return False


__all__ = ["refuse_complex", "refuse_of_rows", "refuse_trained"]
