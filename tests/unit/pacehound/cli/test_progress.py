"""What is shown of work that takes long: on a terminal, after two seconds, how long still, and no trace of it after."""

from __future__ import annotations

import io
import re
import threading

import pytest

from pacehound.cli import progress as progress_module
from pacehound.cli.progress import Progress


class FakeTerminal(io.StringIO):
    """Says that it is one; tells when something was drawn on it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if " %" in text or "for " in text:
            self.is_drawn.set()
        return super().write(text)


@pytest.fixture(autouse=True)
def _a_terminal_that_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_it_is_drawn_while_it_lasts_and_erased_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "SHOWN_AFTER_S", 0.0)
    terminal = FakeTerminal()
    with Progress(terminal) as progress:
        for number in progress.over(range(4), "reading \x1b[31mfiles"):
            if number == 2:
                assert terminal.is_drawn.wait(30)
    drawn = terminal.getvalue()
    assert "%" in drawn
    assert "reading \\x1b[31mfiles" in drawn
    assert "\x1b[31mfiles" not in drawn
    assert drawn.endswith("\x1b[2K"), "the line is erased"


def test_of_what_nobody_knows_how_much_there_is_it_says_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "SHOWN_AFTER_S", 0.0)
    terminal = FakeTerminal()
    with Progress(terminal) as progress:
        progress.stage("simulating")
        assert terminal.is_drawn.wait(30)
    assert re.search(r"simulating for [\d.e-]+ s", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue()))


def test_what_is_over_soon_and_what_is_no_terminal_shows_nothing() -> None:
    terminal, file = FakeTerminal(), io.StringIO()
    for where in (terminal, file):
        with Progress(where) as progress:
            assert list(progress.over(iter("ab"), "reading")) == ["a", "b"]
    assert terminal.getvalue() == file.getvalue() == ""


def test_an_error_ends_it_and_reaches_whoever_called() -> None:
    def work() -> None:
        with Progress(FakeTerminal()) as progress:
            progress.stage("reading")
            raise KeyError("of the work itself")

    with pytest.raises(KeyError, match="of the work itself"):
        work()
