"""`pacehound top`: jobs and incidents on a terminal, drawn anew every few seconds."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from pacehound.cli.options import set_option, store_option
from pacehound.errors import PacehoundError
from pacehound.settings import Settings

Row = Mapping[str, Any]

_KEYS = "up/down: a job  enter: its incidents  esc: back  q: end"
_NAMES = {
    b"q": "quit", b"k": "up", b"j": "down", b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down",
    b"\r": "enter", b"\n": "enter", b"\x1b": "back", b"\x7f": "back",
}  # fmt: skip
_MOST_BYTES = 64


@click.command()
@click.option(
    "--every",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Drawn so often.",
)
@click.option("--once", is_flag=True, help="Print it once and end, as where the output is no terminal.")
@store_option
@set_option
def top(every: float, once: bool, store: Path, overrides: tuple[str, ...]) -> None:
    """Show what runs now and what is wrong with it: the jobs that lose most first, and the incidents that are open.

    They are asked of a folder, or of the server of `store.url`.
    """
    from pacehound.pages.terminal import PlainConsole, terminal
    from pacehound.pages.top import Choice

    settings = Settings.load(os.environ, overrides)

    def look() -> Look:
        return Look.at(store, settings)

    if once or not sys.stdout.isatty():
        console = terminal(sys.stdout)
        console.print(look().page(Choice(), width=console.width, height=None))
        return
    first = look()  # what is wrong with the question is said before the screen is taken
    _draw(PlainConsole(sys.stdout), first, look, every)


class Look:
    """What was known at a time."""

    def __init__(self, jobs: Sequence[Row], incidents: Sequence[Row], now_ns: int) -> None:
        self.jobs = jobs
        self.incidents = incidents
        self.now_ns = now_ns

    @classmethod
    def at(cls, store: Path, settings: Settings) -> Look:
        """Ask once. A store that nobody has open is given back at once: a head may want it."""
        from pacehound.cli.history import OpenedHistory, history
        from pacehound.pages.top import in_order
        from web.answers.incidents import incidents
        from web.answers.jobs import jobs
        from web.source import Source

        with history(store, settings.store) as answers:
            is_watched = not isinstance(answers, OpenedHistory) or answers.is_watched
            source = Source(answers, is_watched=is_watched)
            found, wrong = jobs(source), incidents(source)
        return cls(in_order(found["jobs"]), wrong["incidents"], found["now_ns"])

    def page(self, choice: Any, **how: Any) -> Any:
        """As a screen."""
        from pacehound.pages.top import top_page

        return top_page(self.jobs, self.incidents, choice, now_ns=self.now_ns, **how)


class Keys:
    """Keys as they are pressed, without waiting for the end of a line; the terminal is as it was afterwards."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> Keys:
        if self._fd is not None:
            import termios
            import tty

            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._fd is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def within(self, seconds: float) -> str:
        """The next key's name; empty where none came in time, or it means nothing."""
        if self._fd is None:
            time.sleep(seconds)
            return ""
        waiting = select.poll()
        waiting.register(self._fd, select.POLLIN)
        return _NAMES.get(os.read(self._fd, _MOST_BYTES), "") if waiting.poll(1000 * seconds) else ""


def _draw(console: Any, first: Look, look: Callable[[], Look], every_s: float) -> None:
    from rich.live import Live

    from pacehound.pages.top import Choice

    choice, found, problem = Choice(), first, ""
    with _ended_by_signals(), Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        asked_s = time.monotonic()
        while True:
            size = {"width": console.width, "height": console.height}
            live.update(found.page(choice, keys=_KEYS, problem=problem, **size), refresh=True)
            key = keys.within(max(asked_s + every_s - time.monotonic(), 0.05))
            if key == "quit":
                return
            choice = choice.after(key, len(found.jobs))
            if time.monotonic() >= asked_s + every_s:
                try:
                    found, problem = look(), ""
                except PacehoundError as error:
                    problem = f"nothing newer: {error}"
                asked_s = time.monotonic()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGINT end it in order: the screen is given back."""

    def end(*_: object) -> None:
        raise _Ended

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with contextlib.suppress(_Ended):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Ended(Exception):
    """Somebody has told it to end."""
