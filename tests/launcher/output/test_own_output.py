"""What a node shows of its own ranks, over several generations."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

from paceline.launcher.output.own_output import OwnOutput
from paceline.launcher.output.screen import Screen, Stream
from paceline.launcher.output.sink import Sink


class Page(Sink):
    is_terminal = is_coloured = is_closed = False
    width = 80

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def test_two_generations_on_one_screen_and_in_one_file(tmp_path: Path):
    out, err = Page(), Page()

    async def show() -> None:
        with ExitStack() as lifetimes:
            shown = OwnOutput(asyncio.get_running_loop(), Screen(out, err), tmp_path, lifetimes)
            shown.begin([2, 3], "b")
            shown.feed(2, Stream.OUT, b"one\ntw", 0.0)
            shown.feed(3, Stream.ERR, b"bad\n", 0.0)
            assert shown.last_words(3) == ("bad",)
            shown.end(1.0)
            shown.say(["paceline: generation 2 begins"])
            shown.begin([2], "b")
            shown.feed(2, Stream.OUT, b"o\n", 2.0)
            assert shown.last_words(2) == ()
            shown.end(3.0)

    asyncio.run(show())
    assert out.text == "[b 2] one\n[b 2] tw\n[b 2] o\n"
    assert err.text == "[b 3] bad\npaceline: generation 2 begins\n"
    assert (tmp_path / "job_2.log").read_text() == "one\ntw\no\n"
    assert (tmp_path / "job_3.log").read_text() == "bad\n"


def test_the_chiefs_unfinished_line_is_shown_in_time():
    out = Page()

    async def show() -> None:
        with ExitStack() as lifetimes:
            shown = OwnOutput(asyncio.get_running_loop(), Screen(out, Page()), None, lifetimes)
            shown.begin([0], "a")
            shown.feed(0, Stream.OUT, b"10%", -100.0)  # due long ago
            await asyncio.sleep(0.01)
            shown.feed(0, Stream.OUT, b"\r20%\n", 0.0)
            shown.end(1.0)

    asyncio.run(show())
    assert out.text == "[a 0] 10%\n[a 0] 20%\n"
