"""What a terminal would show of a stream of bytes, one line at a time. Pure: bytes in, lines out.

Keras rewrites its progress bar with backspaces, carriage returns and colours and ends it with one newline per
epoch; other libraries erase to the end of the line or move the cursor. Cut naively at newlines, such output
is unreadable in a file and wrecks a terminal that several workers share. So each stream is shown to a
terminal of one line:

    b"1/2 loss: 0.5\\b\\b\\b" ··· b"\\r2/2 loss: 0.4\\n"  ──►  one finished line "2/2 loss: 0.4"
                              └ `current`: "1/2 loss: 0.5"

Movements to other lines are ignored; they have no meaning between the lines of other workers.
"""

import codecs
import re
import unicodedata
from dataclasses import dataclass
from itertools import groupby

_RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class StyledLine:
    """One line without its newline.

    >>> line = StyledLine((("1", "5/5"), ("", " done")))
    >>> line.plain, line.ansi
    ('5/5 done', '\\x1b[1m5/5\\x1b[0m done')
    """

    spans: tuple[tuple[str, str], ...]
    """Pairs of SGR parameters (``"1;32"``; empty for none) and the text that has them."""

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join(text for _, text in self.spans)

    @property
    def ansi(self) -> str:
        """The text with its colours as escape sequences; a style never outlives the line."""
        return "".join(f"\x1b[{style}m{text}{_RESET}" if style else text for style, text in self.spans)

    def cut(self, width: int) -> "StyledLine":
        """As much of the beginning as fits into `width` columns of a terminal."""
        spans = []
        left = width
        for style, text in self.spans:
            fitting = text if len(text) * 2 <= left else _fitting(text, left)
            spans.append((style, fitting))
            left -= columns(fitting)
            if len(fitting) < len(text):
                break
        return StyledLine(tuple(spans))


EMPTY_LINE = StyledLine(())


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes.

    >>> columns("a\u4e16")
    3
    """
    if text.isascii():
        return len(text)
    return sum(_character_columns(character) for character in text)


def _character_columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitting(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _character_columns(character)
        if used > width:
            return text[:index]
    return text


MAX_LINE_CHARACTERS = 1 << 16
"""A longer line is cut into lines of this length: a stream without newlines needs no endless memory."""

_MAX_ESCAPE_CHARACTERS = 4096
_MAX_STYLE_CHARACTERS = 64

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?P<newline>\n)"
    r"|\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<command>[@-~])"
    r"|\x1b\][^\x00-\x1f]*(?:\x07|\x1b\\)"  # a title or a link: no text
    r"|\x1b[ -/]*[0-Z\\^-~]"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
)
_UNFINISHED_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x00-\x1f]*\x1b?|[ -/]*)\Z")


class TerminalLine:
    """A terminal of one line, for one stream of one worker.

    >>> terminal = TerminalLine()
    >>> [line.plain for line in terminal.feed(b"10%\\r20%")], terminal.current.plain
    ([], '20%')
    >>> [line.plain for line in terminal.feed(b" done\\nnext")]
    ['20% done']
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unread = ""
        self._style = ""
        self._characters: list[str] = []
        self._styles: list[str] = []
        self._cursor = 0
        self._styled = False
        self._rewritten = False

    @property
    def current(self) -> StyledLine:
        """The line that has not been finished yet."""
        text = "".join(self._characters)
        if self._rewritten:  # what erasing with spaces has left
            text = text.rstrip(" ")
        if not text:
            return EMPTY_LINE
        if not self._styled:
            return StyledLine((("", text),))
        cells = zip(self._styles, text, strict=False)
        grouped = groupby(cells, key=lambda cell: cell[0])
        return StyledLine(tuple((style, "".join(character for _, character in run)) for style, run in grouped))

    def feed(self, data: bytes) -> list[StyledLine]:
        """The lines that `data` finishes; a character or sequence cut in two waits for its other half."""
        return self._show(self._unread + self._decoder.decode(data))

    def end(self) -> list[StyledLine]:
        """The stream has ended: the last line, if it lacks its newline."""
        lines = self._show(self._unread + self._decoder.decode(b"", final=True))
        rest = self._finish()
        return [*lines, rest] if rest.spans else lines

    def _show(self, text: str) -> list[StyledLine]:
        self._unread = ""
        unfinished = _UNFINISHED_ESCAPE.search(text, max(0, len(text) - _MAX_ESCAPE_CHARACTERS))
        if unfinished:
            self._unread = unfinished.group()
            text = text[: unfinished.start()]
        lines: list[StyledLine] = []
        for token in _TOKEN.finditer(text):
            match token.lastgroup:
                case "text":
                    self._write(token.group(), lines)
                case "newline":
                    lines.append(self._finish())
                case "control":
                    self._control(token.group())
                case "command":
                    self._command(token["command"], token["parameters"])
        return lines

    def _write(self, text: str, lines: list[StyledLine]) -> None:
        while text:
            piece = text[: MAX_LINE_CHARACTERS - self._cursor]
            text = text[len(piece) :]
            gap = self._cursor - len(self._characters)
            if gap > 0:
                self._characters += " " * gap
                self._styles += [""] * gap
            end = self._cursor + len(piece)
            self._characters[self._cursor : end] = piece
            self._styles[self._cursor : end] = [self._style] * len(piece)
            self._styled = self._styled or self._style != ""
            self._cursor = end
            if end == MAX_LINE_CHARACTERS:
                lines.append(self._finish())

    def _finish(self) -> StyledLine:
        line = self.current
        self._characters = []
        self._styles = []
        self._cursor = 0
        self._styled = False
        self._rewritten = False
        return line

    def _control(self, character: str) -> None:
        if character == "\r":
            self._move(0)
        elif character == "\b":
            self._move(self._cursor - 1)

    def _move(self, column: int) -> None:
        self._rewritten = True
        self._cursor = min(max(column, 0), MAX_LINE_CHARACTERS - 1)

    def _command(self, command: str, parameters: str) -> None:
        """Carries out ``ESC [ parameters command``; unknown ones do nothing."""
        if command == "m":
            self._style = _combined(self._style, parameters)
            return
        number = int(parameters[:6]) if parameters.isdecimal() else None
        match command:
            case "K" | "J":
                self._erase(number or 0)
            case "G":
                self._move((number or 1) - 1)
            case "C":
                self._move(self._cursor + (number or 1))
            case "D":
                self._move(self._cursor - (number or 1))

    def _erase(self, part: int) -> None:
        """0: from the cursor to the end; 1: up to and with the cursor; 2: everything."""
        self._rewritten = True
        if part == 0:
            del self._characters[self._cursor :]
            del self._styles[self._cursor :]
            return
        length = len(self._characters) if part == 2 else min(self._cursor + 1, len(self._characters))
        self._characters[:length] = " " * length
        self._styles[:length] = [""] * length


def _combined(style: str, parameters: str) -> str:
    """The style after ``ESC [ parameters m``: styles add up until a reset.

    >>> _combined("1", "32"), _combined("1;32", "0"), _combined("1", "0;31"), _combined("1", "")
    ('1;32', '', '31', '')
    """
    if parameters in ("", "0"):
        return ""
    if parameters.startswith("0;"):
        return parameters[2 : 2 + _MAX_STYLE_CHARACTERS]
    combined = f"{style};{parameters}" if style else parameters
    return combined if len(combined) <= _MAX_STYLE_CHARACTERS else parameters[:_MAX_STYLE_CHARACTERS]
