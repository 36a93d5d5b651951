"""A Python generator that one rank of each host reads for all ranks of the host.

    rank 0   next(its generator) ─► ring ─► the item       rank 1   next ─► the item, out of the ring

A generator by itself is read on every rank, as the script may go on with it anywhere (`streams.py`). What this returns
is a generator on every rank, too: whoever reads it, Keras or the script, gets the items in their order.
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

from paceline.comm.memory_ring import HostRings, form_rings, ranks_of_this_host
from paceline.comm.world import current_world
from paceline.data.items.item_rings import sendable
from paceline.data.own_rows.division import Whole

_ITEM, _END, _FAULT = range(3)


def once_per_host(generator: Iterable[Any]) -> Iterator[Any]:
    """`generator` for all ranks, read by the first rank of each host; all ranks get its items, in its order.

    For generators that take much of a core, and for sources that give an item away once, such as a queue, or that draw
    random numbers without a seed. All ranks call this, and take equally many items, as they do in `fit`, `evaluate` and
    `predict`. What the generator changes, and the numbers that it draws from shared random generators, are changed and
    drawn on the rank that reads.

        model.fit(paceline.data.once_per_host(batches()), steps_per_epoch=100)

    Args:
        generator: An iterable of items that `pickle` can write. Only the ranks that read go through it.

    Returns:
        A generator. Its first item forms the ranks' memory in common, which is a collective call.

    Raises:
        Exception: from the returned generator on all ranks, what `generator` has raised.
    """
    if current_world().size == 1:
        return iter(generator)
    return _items(generator)


def division_of_generator(generator: Any) -> Whole:
    """What is told of a generator: every rank cuts its rows out of whole batches, whoever reads them."""
    if getattr(generator, "gi_code", None) is _items.__code__:
        return Whole(work="one rank of each host reads the generator, and each rank computes its rows of each batch")
    has_others = current_world().identity.local_world_size > 1
    return Whole(
        "`paceline.data.once_per_host(generator)` would read it on one rank of each host" if has_others else ""
    )


def _items(generator: Iterable[Any]) -> Iterator[Any]:
    group = current_world().group
    ranks = ranks_of_this_host(group)
    rings = form_rings(group, ranks, 1)
    if rings is None:  # this system has no such memory: each rank for itself
        yield from generator
    elif rings.writer is None:
        yield from _taken(rings)
    else:
        yield from _given(rings, generator)


def _given(rings: HostRings, generator: Iterable[Any]) -> Iterator[Any]:
    def write(kind: int, content: Any) -> None:
        assert rings.writer is not None
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
        rings.writer.write(kind, head, [one.raw() for one in buffers], _never)
        rings.readers[0].next(_never)
        rings.readers[0].done()

    try:
        for item in generator:
            write(_ITEM, item)
            yield item
    except Exception as fault:
        write(_FAULT, sendable(fault))
        raise
    write(_END, None)


def _taken(rings: HostRings) -> Iterator[Any]:
    [ring] = rings.readers
    while True:
        record = ring.next(_never)
        assert record is not None
        content = pickle.loads(record.head, buffers=[bytearray(one) for one in record.buffers])
        kind = record.tag
        del record
        ring.done()
        if kind == _END:
            return
        if kind == _FAULT:
            raise content
        yield content


def _never() -> bool:
    return False
