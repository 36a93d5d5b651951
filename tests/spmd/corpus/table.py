"""The corpus as a table of types of operations."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from .instances import Corpus, Instance, Value


def op_types(made: Corpus) -> list[tuple[str, int, int, Instance]]:
    """Each type of operation, how many instances and how many classes have it, and its first; the most common first."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, instance in enumerate(made.instances):
        places[instance.type].append(place)
    rows = [
        (kind, len(found), len(set().union(*(made.classes[place] for place in found))), made.instances[found[0]])
        for kind, found in places.items()
    ]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def lines(made: Corpus) -> Iterator[str]:
    """The table as text, an example below each type; then the classes without a step, and why."""
    yield (
        f"{len(made.made)} classes and functions of Keras, {len(made.instances)} instances,"
        f" {len(made.inputs)} inputs of steps."
    )
    yield "Sizes: with 5 rows, or with 5|7 rows where they differ (?: the other run has no such tensor).\n"
    yield f"{'type':40} {'classes':>7} {'instances':>9}"
    for kind, instances, classes, example in op_types(made):
        attrs = {name: value for name, value in example.attrs.items() if not isinstance(value, np.ndarray)}
        arrow = ", ".join(map(_shown, example.inputs)) + " -> " + ", ".join(map(_shown, example.outputs))
        yield f"{kind:40} {classes:7} {instances:9}"
        yield f"    {arrow}{f'  (random: {example.random})' if example.random else ''}"
        yield f"    {attrs} @ {example.where[0]}"
    for name, errors in sorted(made.refusals.items()):
        if name not in made.made:
            yield "\n    ".join([f"not made: {name}", *(error[:200] for error in errors)])


def _shown(value: Value) -> str:
    dims = " ".join(str(few) if few == many else f"{few}|{'?' if many is None else many}" for few, many in value.dims)
    numbers = ""
    if isinstance(value.content, np.ndarray) and value.dtype.startswith("int") and 0 < value.content.size <= 8:
        numbers = f"={value.content.tolist()}"
        if value.with_more_rows is not None and value.with_more_rows.tolist() != value.content.tolist():
            numbers += f"|{value.with_more_rows.tolist()}"
    return f"{value.dtype}[{dims}]{numbers}{' const' if value.constant else ''}"
