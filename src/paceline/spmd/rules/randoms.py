"""Random numbers: each rank draws those of its own rows, and no others, from the sequence of one worker.

TensorFlow's stateless operations with Philox count. Entry i of a result, counted row by row, follows from the key and
from the number of its block, `counter + i // (numbers in a block)`, whatever was drawn before it. So a rank begins at
the block of its first entry, and drops what is before that entry in it:

    one worker   │ block 0 │ block 1 │ block 2 │ block 3 │ block 4 │ …       (here 4 numbers in a block)
    rows         │ rank 0's rows ────────► │ rank 1's rows ────────►
    rank 1                         │ begins with block 2, and drops its first half

A block is 128 bits: two numbers of 64 bits, four of any other type (of half precision, too). Normal numbers come in
pairs of Box and Muller, which lie within a block. TensorFlow documents of these operations that they make the same
numbers on CPUs and GPUs; its kernels of both count so (`random_op_cpu.h`, `random_op_gpu.h`), also in several threads.
XLA's do not, but it does not compile a step that is divided.

All ranks draw all numbers, by construction those of one worker, where

- an operation throws numbers away and draws again (truncated normal, gamma, binomial, Poisson, categorical), or keeps
  a state in its kernel (`RandomUniform`, `RandomStandardNormal`): these have no rule for rows;
- rows are not the first dimension, so that a rank's numbers do not follow each other;
- the algorithm is not known to be Philox, or the shape not to count rows.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.spmd.contents import of_sizes
from paceline.spmd.decisions import FIRST_ROW, OWN_ROWS, Decision, Operation, Rebuilt, own
from paceline.spmd.factors import decide
from paceline.spmd.placements import R, Sharded, Spec
from paceline.spmd.rules.rule import MapOfFactors, Rule, rules
from paceline.spmd.sizes import ONE, ROWS, Size, counts_rows

_PHILOX = ([1], [3])
"""The algorithm, as an input says it: Philox, or TensorFlow's choice, which is Philox on CPUs and GPUs."""

_BLOCK_BYTES = 16


def _counted(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Own rows where the shape counts rows first; for whoever needs all numbers, all are drawn, without a message."""
    bounds = ", ," if len(specs) == 6 else ""
    whole = decide(op, specs, f"[...], K, C,{bounds} -> ...")
    shape, algorithm = specs[0].content, specs[3].numbers()
    if whole is None or shape is None or not len(shape) or algorithm not in _PHILOX:
        return whole
    block, in_row, dims = shape[0].over(Size.of(ROWS)), ONE, whole.outputs[0].dims
    for size in (block, *shape[1:]):
        in_row = in_row * size
    if not counts_rows(shape[0]) or not in_row.known or dims is None or any(need != R for need in whole.needs):
        return whole
    local = of_sizes([own(shape[0]), *shape[1:]])
    shard = Sharded(0, block)

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        first, count = (builder.size(Size.of(rows) * in_row) for rows in (FIRST_ROW, OWN_ROWS))
        return [_drawn(op, inputs, first, count)]

    outputs = (Spec(shard, (shard.size, *dims[1:])),)
    return Decision((Rebuilt(local), *whole.needs[1:]), outputs, build, also=(whole,))


def _drawn(op: Operation, inputs: list[Any], first: Any, count: Any) -> Any:
    """The entries of one worker's result from `first` on.

    Args:
        op: An operation of the table below.
        inputs: Shape of the result, key (uint64, [1]), counter (uint64, [2]), algorithm; of integers also the bounds.
        first: Number of the first entry, int64.
        count: How many entries the shape has, int64; may be zero.
    """
    shape, key, counter, algorithm, *bounds = inputs
    dtype = op.outputs[0].dtype
    in_block = _BLOCK_BYTES // 8 if dtype.size == 8 else _BLOCK_BYTES // 4
    first = tf.convert_to_tensor(first, tf.int64)
    dropped = first % in_block
    options = dict(zip(("minval", "maxval"), bounds, strict=True)) if bounds else {"dtype": dtype}
    numbers = getattr(tf.raw_ops, op.type)(
        shape=tf.reshape(dropped + count, [1]),
        key=key,
        counter=_later(counter, tf.cast(first // in_block, tf.uint64)),
        alg=algorithm,
        **options,
    )
    return tf.reshape(numbers[dropped:], shape)


def _later(counter: Any, blocks: Any) -> Any:
    """A counter of 128 bits (uint64, [2], the low half first) so many blocks later, as `PhiloxRandom::Skip` counts."""
    low = counter[0] + blocks
    return tf.stack([low, counter[1] + tf.cast(low < blocks, tf.uint64)])


TABLE: dict[str, Rule] = {
    **rules(
        """StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessRandomUniformIntV2
        StatelessRandomUniformFullIntV2""",
        _counted,
    ),
    "StatelessTruncatedNormalV2": MapOfFactors("[...], K, C, -> ..."),
    **rules("StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal", MapOfFactors("[...], K -> ...")),
    **rules("RandomUniform RandomStandardNormal TruncatedNormal", MapOfFactors("[...] -> ...")),
    "RandomUniformInt": MapOfFactors("[...], , -> ..."),
}
