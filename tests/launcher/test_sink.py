import io

from paceline.launcher.sink import StreamSink


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class LeftReader(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_terminal_is_coloured_unless_the_user_objects():
    assert StreamSink(Terminal(), {"TERM": "xterm"}).is_coloured
    plain = StreamSink(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert plain.is_terminal
    assert not plain.is_coloured
    assert not StreamSink(Terminal(), {"TERM": "dumb"}).is_terminal
    assert not StreamSink(io.StringIO(), {"TERM": "xterm"}).is_coloured


def test_what_the_encoding_lacks_becomes_a_question_mark():
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    StreamSink(stream, {}).write("5/5 ━━ done\n")
    assert buffer.getvalue() == b"5/5 ?? done\n"


def test_a_reader_that_left_closes_the_sink_without_an_error():
    sink = StreamSink(LeftReader(), {})
    assert not sink.is_closed
    sink.write("text")
    assert sink.is_closed
    sink.write("more")


def test_a_stream_without_a_terminal_has_a_usual_width():
    assert StreamSink(io.StringIO(), {}).width == 80
