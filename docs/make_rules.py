"""Writes docs/rules.md: the rules of operations, and how many of Keras's classes use each (ten minutes).

make rules
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from paceline.spmd.rules import entrywise, lists, moves, products, randoms, reductions, shapes
from paceline.spmd.rules.rule import MapOfFactors, Rule

PAGE = Path(__file__).with_name("rules.md")

TOPICS: dict[str, Mapping[str, Rule]] = {
    "Each entry by itself": entrywise.TABLE,
    "Products, convolutions, pools, images": products.TABLE,
    "Reductions, matrices": reductions.TABLE,
    "Moves: transposes, slices, gathers": moves.TABLE,
    "Shapes": shapes.TABLE,
    "Random numbers": randoms.TABLE,
    "Lists of tensors": lists.TABLE,
}

INTRODUCTION = """\
# How each operation is divided

A step of `fit` is traced once, as one worker computes it, and divided over the workers by these rules
([decision 0036](decisions/0036-spmd-partitioner.md)). An operation that has none gets the rows of all workers: its
numbers are right, and more workers do not make it
faster. Generated from the code by `make rules`: do not edit.

## Reading a rule

A rule names the indices of an operation's inputs and outputs, as an einsum does: a product of matrices is `i k, k j
-> i j`.

- The operation does the same for each value of an index with a **small letter**. If the rows of the batch lie along
  this index, each worker computes its own rows.
- All values of an index with a **capital** are needed at once. If the rows lie there, the workers' rows are gathered
  first.
- If **no output** has the index along which the rows lie, each worker has a part of a sum (the gradient of a weight,
  a loss). Sums of workers travel in one message where they are needed.
- `...` are leading dimensions, broadcast as NumPy does. `1` is a dimension of one entry. Nothing between two commas
  is a single number. `[n H W C]` is an input that holds a shape.
- *Linear in*: an operation on parts of a sum is done on each worker's part, and needs no message.

A sentence stands where the rule depends on the operation's attributes or shapes. Loops and branches (`While`, `If`,
`Case`) are divided by themselves. What prints, writes files or calls Python
runs on the chief, with whole tensors.

## A rule of your own

An operation of your own, or one that is not below, can be given a rule, on all workers and before the first step:

```python
import paceline

paceline.register_rule("Lu", "... M N -> ... M N, ... M")  # each matrix of a batch alone
paceline.register_rule("MyProduct", "i k, k j -> i j", linear=((0,), (1,)))
```

The name is the type of the operation (`tf.Operation.type`). A rule that is not true is found on the first batch:
`fit` compares the divided step with the undivided one
([how](exactness.md#how)), says which number differs, and every worker computes whole batches. In plain `python
train.py` the call does nothing.

## The rules

The last column is how many of Keras's layers, losses, metrics and optimizers use the operations, in the steps with
which the rules are proved (`tests/spmd/corpus`).
"""


def page(uses: Mapping[str, int]) -> str:
    """The page.

    Args:
        uses: How many classes of Keras use a type of operation.
    """
    return "\n".join([INTRODUCTION, *(line for title, table in TOPICS.items() for line in _topic(title, table, uses))])


def _topic(title: str, table: Mapping[str, Rule], uses: Mapping[str, int]) -> Iterator[str]:
    yield from (f"### {title}", "", "| operations | rule | linear in | classes |", "| --- | --- | --- | --- |")
    alike: dict[tuple[str, str], list[str]] = {}
    for kind, rule in table.items():
        alike.setdefault(_told(rule), []).append(kind)
    for (told, linear), kinds in alike.items():
        most = max((uses.get(kind, 0) for kind in kinds), default=0)
        yield f"| {' '.join(f'`{kind}`' for kind in kinds)} | {told} | {linear} | {most or ''} |"
    yield ""


def _told(rule: Rule) -> tuple[str, str]:
    """A rule in words, and in which inputs it is linear."""
    if not isinstance(rule, MapOfFactors):
        return _sentence(rule), ""
    linear = " · ".join(" + ".join(str(index + 1) for index in group) for group in rule.linear)
    if isinstance(rule.text, str):
        return f"`{rule.text.strip()}`", linear
    return _sentence(rule.text), linear


def _sentence(rule: object) -> str:
    text = (rule.__doc__ or "").split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def uses_of_keras() -> dict[str, int]:
    """How many of Keras's classes use each type of operation in the steps of the corpus; takes minutes."""
    sys.path.insert(0, str(PAGE.parent.parent))
    from tests.spmd.corpus import Extent, corpus
    from tests.spmd.corpus.table import op_types

    return {kind: classes for kind, _, classes, _ in op_types(corpus(extent=Extent.FIRST))}


if __name__ == "__main__":
    PAGE.write_text(page(uses_of_keras()), encoding="utf-8")
