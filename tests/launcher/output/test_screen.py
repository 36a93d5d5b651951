"""What the user sees, with a fake terminal and a clock that is only a number."""

import time

from hypothesis import given
from hypothesis import strategies as st

from notebook_rows import notebook_rows
from paceline.launcher.output.screen import DRAW_INTERVAL_SECONDS, SAME_TIME_SECONDS, STATE_INTERVAL_SECONDS, Screen
from paceline.launcher.output.terminal_line import EMPTY_LINE, StyledLine, TerminalLine
from paceline.launcher.output.text_stream import TextOutput
from paceline.rendezvous.agent_messages import Stream


class FakeSink(TextOutput):
    """Keeps what was written; `others` share one list to see the order."""

    def __init__(
        self, *, terminal: bool, width: int = 40, written: list[str] | None = None, notebook: bool = False
    ) -> None:
        self.written = [] if written is None else written
        self.is_live = terminal or notebook
        self._erases_with_spaces = notebook
        self._width = width

    @property
    def is_coloured(self) -> bool:
        return False

    @property
    def width(self) -> int:
        return self._width

    @property
    def is_closed(self) -> bool:
        return False

    def write(self, text: str) -> None:
        self.written.append(text)

    @property
    def text(self) -> str:
        return "".join(self.written)


def line(text: str) -> StyledLine:
    return StyledLine((("", text),))


def visible(text: str) -> list[str]:
    """The rows that a real terminal would show in the end."""
    terminal = TerminalLine()
    return [row.plain for row in terminal.feed(text.encode())] + [terminal.current.plain]


def terminal_screen(width: int = 40) -> tuple[Screen, FakeSink]:
    stdout = FakeSink(terminal=True, width=width)
    return Screen(stdout, FakeSink(terminal=True, width=width, written=stdout.written), {0: "0", 1: "1"}), stdout


def pipe_screen(num_ranks: int = 2) -> tuple[Screen, FakeSink, FakeSink]:
    stdout, stderr = FakeSink(terminal=False), FakeSink(terminal=False)
    return Screen(stdout, stderr, {rank: str(rank) for rank in range(num_ranks)}), stdout, stderr


def test_lines_carry_their_rank_aligned_and_go_to_their_own_stream():
    screen, stdout, stderr = pipe_screen(12)
    screen.show(3, Stream.OUT, [line("a"), line("b")], EMPTY_LINE, 0.0)
    screen.show(11, Stream.ERR, [line("c")], EMPTY_LINE, 0.0)
    assert stdout.text == "[ 3] a\n[ 3] b\n"
    assert stderr.text == "[11] c\n"


def test_the_chiefs_bar_is_rewritten_in_place():
    screen, stdout = terminal_screen()
    screen.show(0, Stream.OUT, [], line("1/5"), 0.0)
    assert visible(stdout.text) == ["[0] 1/5"]
    screen.show(0, Stream.OUT, [], line("2/5"), 0.01)
    assert visible(stdout.text) == ["[0] 1/5"]  # not drawn more often than the eye can see
    assert screen.deadline == 0.01 + DRAW_INTERVAL_SECONDS
    screen.tick(0.07)
    assert visible(stdout.text) == ["[0] 2/5"]
    assert screen.deadline is None
    screen.show(0, Stream.OUT, [line("5/5 done")], EMPTY_LINE, 0.1)
    assert visible(stdout.text) == ["[0] 5/5 done", ""]


def test_another_workers_line_goes_above_the_bar():
    screen, stdout = terminal_screen()
    screen.show(0, Stream.OUT, [], line("1/5"), 0.0)
    screen.show(1, Stream.ERR, [line("warning")], EMPTY_LINE, 0.1)
    screen.say(["paceline: news"])
    assert visible(stdout.text) == ["[1] warning", "paceline: news", "[0] 1/5"]


def test_other_ranks_unfinished_lines_are_not_shown():
    screen, stdout = terminal_screen()
    screen.show(1, Stream.OUT, [], line("1/5"), 0.0)
    screen.tick(100.0)
    assert stdout.text == ""


def test_a_bar_wider_than_the_terminal_is_cut_to_one_row():
    screen, stdout = terminal_screen(width=20)
    screen.show(0, Stream.OUT, [], line("x" * 100), 0.0)
    assert visible(stdout.text) == ["[0] " + "x" * 15]
    screen.show(0, Stream.OUT, [line("x" * 100)], EMPTY_LINE, 0.1)
    assert visible(stdout.text) == ["[0] " + "x" * 100, ""]


@given(st.lists(st.tuples(st.sampled_from(["bar", "line", "other", "launcher", "tick"]), st.integers(0, 60))))
def test_a_notebook_shows_what_a_terminal_shows(doings: list[tuple[str, int]]):
    """It knows neither the erasing of a line nor other movements."""
    shown = []
    for sink in (FakeSink(terminal=True), FakeSink(terminal=False, notebook=True)):
        screen, now = Screen(sink, sink, {0: "0", 1: "1"}), 0.0
        for doing, length in doings:
            now += 0.02
            if doing == "bar":
                screen.show(0, Stream.OUT, [], line("━" * length), now)
            elif doing == "line":
                screen.show(0, Stream.OUT, [line("x" * length)], EMPTY_LINE, now)
            elif doing == "other":
                screen.show(1, Stream.ERR, [line(f"y{now:.2f}")], EMPTY_LINE, now)
            elif doing == "launcher":
                screen.say([f"paceline: {length}"])
            else:
                screen.tick(now)
        screen.tick(now + 1)
        shown.append(sink.text)
    assert notebook_rows(shown[1]) == [row.rstrip() for row in visible(shown[0])]
    assert "\x1b" not in shown[1]


def test_closing_takes_the_bar_away():
    screen, stdout = terminal_screen()
    screen.show(0, Stream.OUT, [], line("1/5"), 0.0)
    screen.close()
    assert visible(stdout.text) == [""]


def test_a_pipe_gets_finished_lines_and_a_state_now_and_then():
    screen, stdout, _ = pipe_screen()
    now = 0.0
    for step in range(1, 300):
        now = step * 0.1
        screen.show(0, Stream.OUT, [], line(f"{step}/300"), now)
        screen.tick(now)
    screen.show(0, Stream.OUT, [line("300/300")], EMPTY_LINE, 30.0)
    rows = stdout.text.splitlines()
    assert rows[-1] == "[0] 300/300"
    assert len(rows) == 3
    assert now / len(rows) >= STATE_INTERVAL_SECONDS - 1


def test_a_quick_bar_leaves_only_its_last_line_in_a_pipe():
    screen, stdout, _ = pipe_screen()
    for step in range(50):
        screen.show(0, Stream.OUT, [], line(f"{step}/50"), step * 0.1)
    screen.show(0, Stream.OUT, [line("50/50")], EMPTY_LINE, 5.0)
    screen.tick(100.0)
    assert stdout.text == "[0] 50/50\n"


def test_a_state_that_does_not_change_is_written_once():
    screen, stdout, _ = pipe_screen()
    screen.show(0, Stream.OUT, [], line("loading"), 0.0)
    for now in range(11, 100, 11):
        screen.tick(float(now))
        screen.show(0, Stream.OUT, [], line("loading"), float(now))
    assert stdout.text == "[0] loading\n"


def test_the_prompt_of_the_rank_that_has_the_keyboard_is_shown():
    """Only the chief's unfinished line was: a user of `--debug-rank 1` typed without a prompt."""
    stdout = FakeSink(terminal=True)
    screen = Screen(stdout, FakeSink(terminal=True), {0: "0", 1: "1"}, live_rank=1)
    screen.show(0, Stream.OUT, [], line("1/5"), 0.0)
    screen.show(1, Stream.OUT, [line("-> fit()")], line("(Pdb) "), 0.1)
    screen.tick(1.0)
    assert visible(stdout.text) == ["[1] -> fit()", "[1] (Pdb) "]


def test_a_terminal_beside_a_file_keeps_its_bar_untouched_by_the_files_lines():
    stdout, stderr = FakeSink(terminal=False), FakeSink(terminal=True)
    screen = Screen(stdout, stderr, {0: "0", 1: "1"})
    screen.show(0, Stream.ERR, [], line("tqdm 10%"), 0.0)
    screen.show(1, Stream.OUT, [line("result")], EMPTY_LINE, 0.1)
    assert stdout.text == "[1] result\n"
    assert visible(stderr.text) == ["[0] tqdm 10%"]


def test_half_a_line_is_no_state_when_the_pipes_reader_had_paused():
    """The head was held up for longer than the interval, and showed what it had of a line whose rest was on its way."""
    screen, stdout, _ = pipe_screen()
    screen.show(0, Stream.OUT, [line("1")], line("2 x"), 0.0)
    screen.tick(16.0)
    screen.show(0, Stream.OUT, [line("2 xxx")], line("3"), 16.1)
    assert stdout.text == "[0] 1\n[0] 2 xxx\n"
    screen.tick(16.1 + STATE_INTERVAL_SECONDS)
    assert stdout.text.endswith("[0] 3\n")


def show(screen: Screen, rank: int, *lines: str, now: float = 0.0, stream: Stream = Stream.ERR) -> None:
    screen.show(rank, stream, [line(text) for text in lines], EMPTY_LINE, now)


def test_what_all_ranks_write_is_shown_once_as_often_as_one_rank_wrote_it():
    """Of 31 lines of a start with four workers, 24 were the same eight, three times over."""
    screen, _, stderr = pipe_screen(4)
    for rank in (1, 3, 0, 2):
        show(
            screen,
            rank,
            "WARNING: a line without a stamp",
            f"I0000 00:00:1795372633.06283{rank}    71{rank}7 gpu_device.cc:227] Created device",
            f"2026-11-22 18:36:43.12345{rank}: W tensorflow/core/util/port.cc:153] a warning",
            f"2026-11-22 18:36:4{rank},123 INFO loaded",
            "twice",
            "twice",
            f"mine {rank}",
        )
    rows = stderr.text.splitlines()
    assert [row for row in rows if "mine" not in row] == [
        "[1] WARNING: a line without a stamp",
        "[1] I0000 00:00:1795372633.062831    7117 gpu_device.cc:227] Created device",
        "[1] 2026-11-22 18:36:43.123451: W tensorflow/core/util/port.cc:153] a warning",
        "[1] 2026-11-22 18:36:41,123 INFO loaded",
        "[1] twice",
        "[1] twice",
    ]
    assert sorted(row for row in rows if "mine" in row) == [f"[{rank}] mine {rank}" for rank in range(4)]


def test_no_line_is_lost_that_one_rank_alone_wrote():
    screen, stdout, stderr = pipe_screen(2)
    show(screen, 0, "step", "step")
    show(screen, 1, "step")
    show(screen, 1, "step", "step")
    show(screen, 0, "E0000 00:00:1.5 12 a.cc:1] bad")
    show(screen, 1, "W0000 00:00:1.5 12 a.cc:1] bad", "12 bad")
    show(screen, 1, "step", stream=Stream.OUT)
    rows = [*stderr.text.splitlines(), *stdout.text.splitlines()]
    assert rows == [
        *("[0] step", "[0] step", "[1] step"),
        *("[0] E0000 00:00:1.5 12 a.cc:1] bad", "[1] W0000 00:00:1.5 12 a.cc:1] bad", "[1] 12 bad", "[1] step"),
    ]


def test_what_the_script_prints_on_every_rank_is_shown_from_every_rank():
    screen, stdout, _ = pipe_screen(2)
    for rank in (0, 1):
        show(screen, rank, "loss 0.25", stream=Stream.OUT)
    assert stdout.text.splitlines() == ["[0] loss 0.25", "[1] loss 0.25"]


def test_a_line_that_one_rank_writes_thousands_of_times_costs_no_more_each_time():
    """Each one was looked for among all that were shown before it: 30,000 lines took 11 s, and held the job up."""
    screen, _, stderr = pipe_screen()
    began = time.process_time()
    for _ in range(20_000):
        screen.show(0, Stream.ERR, [line("step")], EMPTY_LINE, 0.0)
    assert time.process_time() - began < 2.0
    screen.show(1, Stream.ERR, [line("step")], EMPTY_LINE, 0.0)
    assert stderr.text.count("step") == 20_000


def test_a_rank_that_comes_much_later_and_a_new_generation_and_trouble_are_shown():
    screen, _, stderr = pipe_screen(2)
    show(screen, 0, "loaded")
    show(screen, 1, "loaded", now=SAME_TIME_SECONDS + 1)
    screen.name_ranks({0: "0", 1: "1"})
    show(screen, 0, "loaded", now=SAME_TIME_SECONDS + 2)
    screen.show_all()
    show(screen, 1, "loaded", now=SAME_TIME_SECONDS + 2)
    assert stderr.text.splitlines() == ["[0] loaded", "[1] loaded", "[0] loaded", "[1] loaded"]


def test_the_chiefs_line_that_another_rank_finished_first_leaves_no_live_line():
    screen, stdout = terminal_screen()
    screen.show(0, Stream.ERR, [], line("half"), 0.0)
    show(screen, 1, "half a line")
    show(screen, 0, "half a line")
    assert visible(stdout.text) == ["[1] half a line", ""]
