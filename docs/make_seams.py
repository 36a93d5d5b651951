"""Writes docs/seams.md: what Paceline puts in the place of attributes of Keras and TensorFlow.

make docs
"""

from collections.abc import Iterator
from pathlib import Path

from paceline.seams import table
from paceline.strategy import nested_functions, operation_seeds
from paceline.strategy.seams import Seam

PAGE = Path(__file__).with_name("seams.md")

INTRODUCTION = """\
# What is replaced in Keras and TensorFlow

Generated from the code by `make docs`: do not edit. `paceline run`, and the first strategy of a script, put functions
of Paceline around the following attributes. Where several reasons stand, the last one is outermost: a call goes through
it first. Outside Paceline's strategies nothing changes. When a new
Keras or TensorFlow lacks a name, importing Keras says so, with all such names.

Besides these, `tf.distribute`'s strategies are Paceline's under `paceline run`, and the methods `result` and
`update_state` of a metric's class are wrapped when a metric is made, and an optimizer of a pipeline's stage has its own
`_clip_gradients`, `check_finite` and `update_step` while its update is traced.
"""

ALWAYS = "## In every process whose script imports Keras"
SERVERS = """\
## In processes that make a `ParameterServerStrategy`
"""
PIPELINES = """\
## In processes that make a `PipelineStrategy`
"""
LOOPS = """\
## Before the first step of a loop with `strategy.run`

Only where several replicas run it ([decision 0038](decisions/0038-loops-with-strategy-run.md)).
"""


def page() -> str:
    """The text of docs/seams.md."""
    return "\n".join(
        [
            INTRODUCTION,
            ALWAYS,
            "",
            *_table([*operation_seeds.rows(), *table.rows()]),
            "",
            SERVERS,
            *_table(table.of_servers()),
            "",
            PIPELINES,
            *_table(table.of_pipelines()),
            "",
            LOOPS,
            *_table([*nested_functions.rows(), *table.of_loops()]),
            "",
        ]
    )


def _table(rows: list[Seam]) -> Iterator[str]:
    reasons: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for name in row.names:
            reasons.setdefault(row.where, {}).setdefault(name, []).append(row.why)
    yield "| attribute | why |"
    yield "|---|---|"
    for owner, names in sorted(reasons.items()):
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, why in names.items():
            alike.setdefault(tuple(why), []).append(name)
        for why, together in alike.items():
            listed = ", ".join(f"`{name}`" for name in together)
            yield f"| {owner}: {listed} | {'; then: '.join(why)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
