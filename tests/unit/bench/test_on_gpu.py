"""What `make gpu` does without a GPU, and the page that it writes with one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.on_gpu import __main__ as command
from bench.on_gpu import machine
from bench.on_gpu.page import is_right, page, plan
from bench.on_gpu.rig import OutOfTime
from bench.on_gpu.stages import STAGES, Seen, Stage


def test_without_a_gpu_it_says_what_it_would_do_and_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "why_not", lambda: "the driver has no GPU")
    monkeypatch.setattr(command, "Rig", None)  # nothing is started
    assert command.main([]) == 3
    said = capsys.readouterr().out
    assert "the driver has no GPU" in said
    assert all(f"{stage.name} (" in said and stage.does in said for stage in STAGES)


def test_all_stages_fit_into_ten_minutes() -> None:
    assert sum(stage.budget_s for stage in STAGES) <= command.MOST_S == 600
    assert "make gpu" in plan("")


def test_a_stage_that_fails_keeps_what_it_saw_and_does_not_end_the_others() -> None:
    class NoRig:
        stopped = 0

        def stop_all(self) -> None:
            NoRig.stopped += 1

    def fails(_: object) -> Iterator[Seen]:
        yield Seen("one", "1", True)
        raise RuntimeError("a job ended with 1")

    def is_late(_: object) -> Iterator[Seen]:
        yield from ()
        raise OutOfTime

    found, why = command._acted(Stage("a", "does", 1, fails), NoRig())  # type: ignore[arg-type]
    assert ([one.what for one in found], why) == (["one"], "RuntimeError: a job ended with 1")
    assert command._acted(Stage("b", "does", 1, is_late), NoRig()) == ([], "the 600 s were over")  # type: ignore[arg-type]
    assert NoRig.stopped == 2


def test_the_page_says_what_was_not_as_it_should_be() -> None:
    stage = STAGES[0]
    good, bad = Seen("calls", "4 | 4", True), Seen("gone", "0", False)
    text = page({"GPU": "H"}, "2026-11-25", [(stage, [good, Seen("ms", "1.5")], ""), (stage, [bad], "timeout\nof it")])
    assert "| calls | 4 / 4 | yes |" in text
    assert "| ms | 1.5 |  |" in text
    assert "| gone | 0 | **no** |" in text
    assert "Not to its end: timeout of it" in text
    assert is_right([(stage, [good], "")])
    assert not is_right([(stage, [good], "why")])
    assert not is_right([(stage, [bad], "")])
