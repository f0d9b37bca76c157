"""What a terminal shows: our own words and colours, and of what others have written only text (`plain`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pacehound.model.plain import plain

WIDTH = 80
"""Columns at most: longer lines are hard to read."""


class PlainConsole(Console):
    """A console for text of others: their markup is not read, and what would be obeyed is escaped."""

    def __init__(self, file: Any) -> None:
        super().__init__(file=file, highlight=False, soft_wrap=False, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        """A string as a cell or a line, escaped before its width is reckoned."""
        return super().render_str(plain(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As it is, but for what is no text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def terminal(file: Any) -> Console:
    """A console of at most 80 columns; without colours where `file` is no terminal."""
    console = PlainConsole(file)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


class PlainFormatter(logging.Formatter):
    """Lines of a log, one each whatever is put into them; tracebacks keep theirs."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        words = record.getMessage().replace("\n", "\\n")
        return plain(super().format(logging.makeLogRecord(record.__dict__ | {"msg": words, "args": None})))
