import json

from hypothesis import given
from hypothesis import strategies as st

from paceline.resilience.cursor import Cursor, Replay, replay_to


def test_comes_back_by_making_iterators_and_skipping_in_the_last() -> None:
    cursor = Cursor(batches=(7, 0, 3))
    assert replay_to(cursor, is_one_stream=False) == Replay(2, (), 3)
    assert replay_to(cursor, is_one_stream=True) == Replay(2, (7, 0), 3)
    assert replay_to(Cursor(), is_one_stream=False) == Replay(0, (), 0)


@given(
    st.builds(
        Cursor,
        epoch=st.integers(0, 99),
        step=st.integers(0, 10**9),
        batches=st.lists(st.integers(0, 10**6)).map(tuple),
        steps_seen=st.integers(0, 10**9),
    )
)
def test_survives_json(cursor: Cursor) -> None:
    assert Cursor.from_json(json.loads(json.dumps(cursor.to_json()))) == cursor
