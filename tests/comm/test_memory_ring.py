"""A ring in memory that processes share: records in order, bounded, of any size, and nobody waits for what is over."""

import os
import threading

import numpy as np
import pytest

from paceline.comm.memory_ring import NUM_SLOTS, Record, RingMemory, RingReader, RingWriter

pytestmark = pytest.mark.timeout(60)


def never() -> bool:
    return False


def always() -> bool:
    return True


def numbers(record: Record | None) -> list[int]:
    assert record is not None
    return [int(np.frombuffer(one, np.int64).sum()) for one in record.buffers]


def ring_of(num_readers: int) -> tuple[RingWriter, list[RingReader]]:
    """As another process sees it, whose files are opened by their numbers."""
    memory = RingMemory.create(num_readers)
    others = [RingMemory.open(os.getpid(), memory.descriptors) for _ in range(num_readers)]
    return RingWriter(memory, num_readers), [RingReader(one, number) for number, one in enumerate(others)]


def test_each_reader_gets_each_record_in_order_also_when_they_grow() -> None:
    writer, readers = ring_of(2)
    for number in range(3 * NUM_SLOTS):
        arrays = [np.full(size, 1) for size in (number % 3, 10 * number**3, 1)]
        assert writer.write(number, f"{number}".encode(), arrays, never)
        for reader in readers:
            record = reader.next(never)
            assert record is not None
            assert (record.tag, record.head) == (number, f"{number}".encode())
            assert numbers(record) == [number % 3, 10 * number**3, 1]
            reader.done()


def test_the_writer_waits_for_the_slowest_reader() -> None:
    writer, (quick, slow) = ring_of(2)
    for number in range(NUM_SLOTS):
        assert writer.write(number, b"", [], never)
        assert quick.next(never)
        quick.done()
    assert not writer.write(NUM_SLOTS, b"", [], always), "there is no free slot"
    waiting = threading.Thread(target=writer.write, args=(NUM_SLOTS, b"last", [], never))
    waiting.start()
    first = slow.next(never)
    assert first is not None
    assert first.tag == 0, "nobody has taken its slot"
    slow.done()
    waiting.join()
    record = quick.next(never)
    assert record is not None
    assert record.head == b"last"


def test_a_reader_does_not_wait_for_what_is_over() -> None:
    writer, [reader] = ring_of(1)
    assert reader.next(always) is None
    assert writer.write(7, b"", [], always), "there is a slot: nothing to wait for"
    assert reader.next(always) is not None


def test_the_files_are_closed_with_the_ring() -> None:
    memory = RingMemory.create(1)
    descriptors = memory.descriptors
    writer = RingWriter(memory, 1)
    assert writer.write(0, b"", [np.ones(9)], never)
    del memory, writer
    for one in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(one)
