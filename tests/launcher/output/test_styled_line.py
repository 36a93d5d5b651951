from hypothesis import given
from hypothesis import strategies as st

from paceline.launcher.output.terminal_line import StyledLine, columns


def test_wide_and_combining_characters_take_their_columns():
    assert columns("abc") == 3
    assert columns("日本") == 4
    assert columns("e\u0301") == 1
    assert columns("━━") == 2


def test_cut_keeps_styles_and_stops_in_the_right_span():
    line = StyledLine((("1", "abc"), ("", "def"), ("32", "ghi")))
    assert line.cut(4).spans == (("1", "abc"), ("", "d"))
    assert line.cut(100) == line


@given(st.lists(st.tuples(st.sampled_from(["", "1"]), st.text(max_size=20)), max_size=5), st.integers(0, 40))
def test_cut_fits_and_is_the_beginning(spans: list[tuple[str, str]], width: int):
    line = StyledLine(tuple(spans))
    cut = line.cut(width)
    assert columns(cut.plain) <= width
    assert line.plain.startswith(cut.plain)
