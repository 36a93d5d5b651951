"""A line of text as a terminal shows it: pieces of text, each with its colours. Pure.

What a worker wrote is kept in this form because it ends in three places that want it differently: a terminal
(with colours, cut to the width), a pipe and a log file (plain).
"""

import unicodedata
from dataclasses import dataclass

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
