import numpy as np

from paceline.fit.snapshots.data_position import DATA, GENERATORS, SOURCE, Begin, Cursor, DataPosition, path_of
from paceline.fit.sources.source import Position
from paceline.resilience.object_state import Tensors, encode, frozen
from paceline.resilience.parts import Part, Scope
from saved_parts import layouts_of, restore, snapshot_of


def test_comes_back_from_a_snapshot_to_as_many_ranks_and_to_others() -> None:
    held = {GENERATORS: {"numpy": np.arange(3)}, SOURCE: {"order": np.arange(100), "seen": 4}}
    begins = []
    for name, value in held.items():
        tensors: Tensors = {}
        begins.append(frozen(encode(value, tensors, path_of(name)), tensors))
    cursor = Cursor(epoch=1, step=7, batches=(7, 0), steps_seen=3)
    position = DataPosition(cursor, Begin(*begins), 7, Position((7, 0), np.ones(2), "f"), None, True)
    found: list[DataPosition] = []
    part = Part(DATA, Scope.RANK, position.captured, lambda saved: found.append(DataPosition.saved(saved)))
    for num_ranks in (1, 2):
        restore(snapshot_of([[part]]), [part], layouts_of([range(num_ranks)])[0])
    for again in found:
        assert (again.cursor, again.num_batches, again.is_over) == (position.cursor, 7, True)
        assert again.begin.generators.tensors.keys() == begins[0].tensors.keys()
        np.testing.assert_equal(again.begin.generators.value, held[GENERATORS])
        np.testing.assert_equal(again.begin.source.value, held[SOURCE])
    assert found[0].of_source.state.tolist() == [1, 1]
    assert (found[0].of_source.batches, found[0].of_source.form) == ((7, 0), "f")
    assert found[1].of_source.state is None, "another number of ranks reads the data again"
