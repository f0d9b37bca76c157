"""What jobs, hosts and kernels call themselves is shown as text, wherever it is printed, and never obeyed."""

from __future__ import annotations

import io
import logging
import re
import unicodedata

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pacehound import cli
from pacehound.model.events import Cost, Finding, Incident, Instant
from pacehound.model.evidence import OnlyWords
from pacehound.model.plain import plain
from pacehound.pages.incidents import print_incidents
from pacehound.pages.rows import print_rows
from pacehound.pages.terminal import PlainConsole, PlainFormatter, terminal

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b31m[bold]x[/nothing]\r"
OBEYED = {"\x1b", "\x07", "\x9b", "\r", "\u202e"}


def on_a_terminal(console_print) -> str:
    file = io.StringIO()
    console = PlainConsole(file)
    console._force_terminal, console._color_system = True, None
    console_print(console)
    return file.getvalue()


@given(st.text())
def test_plain_text_holds_nothing_that_is_obeyed_and_stays_as_it_is(text: str) -> None:
    shown = plain(text)
    kinds = {unicodedata.category(one) for one in shown if one not in "\t\n"}
    assert not kinds & {"Cc", "Cs", "Zl", "Zp"}
    assert plain(shown) == shown
    shown.encode()  # it can be written


@pytest.mark.parametrize("text", ["", "café 節点 → ✓", "a\tb\nc", "C:\\temp"])
def test_text_is_left_alone(text: str) -> None:
    assert plain(text) == text


def test_an_incident_with_hostile_names_is_shown() -> None:
    finding = Finding(
        id="f", job=HOSTILE, attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,),
        onset=Instant(step=1, time_ns=1), detected=Instant(step=2, time_ns=2), unseen=(HOSTILE,),
        evidence=(OnlyWords(words=HOSTILE),),
    )  # fmt: skip
    incident = Incident(
        id="i", version=0, job=HOSTILE, attempt=0, time_ns=3, state="open", opened_ns=3, findings=(finding,),
        cost=Cost(excess_s=1.0, ranks=4, gpu_hours=0.1),
    )  # fmt: skip
    file = io.StringIO()
    print_incidents(terminal(file), [incident], [])
    assert not OBEYED & set(file.getvalue())
    assert "job \\x1b]0;owned" in file.getvalue()


def test_markup_and_cells_are_text() -> None:
    def show(console: Console) -> None:
        table = Table("name")
        table.add_row(HOSTILE)
        console.width = 200
        console.print(table)
        console.print(HOSTILE)
        console.print(Text(HOSTILE))

    shown = on_a_terminal(show)
    assert not OBEYED & set(shown)
    assert shown.count("[bold]x[/nothing]") == 3


def test_rows_of_an_answer_are_text_on_a_terminal_and_in_a_pipe() -> None:
    file = io.StringIO()
    print_rows(pa.table({"job": [HOSTILE, "a\tb"]}), file)
    assert not OBEYED & set(file.getvalue())
    assert len(file.getvalue().splitlines()) == 3


def wide_terminal(table: pa.Table, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    file = io.StringIO()
    file.isatty = lambda: True  # type: ignore[method-assign]
    print_rows(table, file)
    return [line.rstrip() for line in re.sub(r"\x1b\[\d*m", "", file.getvalue()).splitlines()]


def test_rows_that_fit_are_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"job": ["a", "bb"], "n": [1, 20]})
    assert wide_terminal(table, 40, monkeypatch) == ["job  n", "a    1", "bb   20"]


def test_rows_that_do_not_fit_are_a_block_each_and_no_value_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"job": ["a", "b"], "evidence": ["x" * 70, "short"], "n": [1, 20]})
    lines = wide_terminal(table, 40, monkeypatch)
    assert lines[0] == "row 1 of 2"
    assert lines[1] == "job       a"
    assert "".join(line[10:] for line in lines[2:5]) == "x" * 70
    assert lines[-4:] == ["row 2 of 2", "job       b", "evidence  short", "n         20"]


def test_no_rows_are_a_header_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wide_terminal(pa.table({"job": pa.array([], pa.string())}), 40, monkeypatch) == ["job"]


def test_an_error_that_quotes_its_input_does_not_hand_it_to_the_terminal() -> None:
    shown = CliRunner().invoke(cli.pacehound, ["status", "--set", f"{HOSTILE}=1"])
    assert shown.exit_code == 2
    assert not OBEYED & set(shown.output)


def test_a_log_line_is_one_line_whatever_is_put_into_it() -> None:
    record = logging.LogRecord("pacehound", logging.WARNING, "", 0, "job %s", (f"{HOSTILE}\nroot: forged",), None)
    line = PlainFormatter("%(message)s").format(record)
    assert "\n" not in line
    assert not OBEYED & set(line)


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), (ValueError, error, error.__traceback__))
    lines = PlainFormatter("%(message)s").format(record).splitlines()
    assert lines[0] == "failed"
    assert len(lines) > 3
    assert not OBEYED & set("".join(lines))
