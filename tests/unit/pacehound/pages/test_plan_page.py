"""Options for a person: what they cost and give, when they are due, which one is chosen, and how sure that is."""

from __future__ import annotations

import io
from dataclasses import dataclass

from pacehound.pages.plan import plan_answer, print_plan
from pacehound.pages.terminal import terminal
from tests.fakes.events import incident


@dataclass(frozen=True)
class One:
    action: str
    cost_s: float
    expected_gain: float
    due_in_s: float | None
    reversible: bool
    reason: str
    uncertainty: float = 0.0


@dataclass(frozen=True)
class Several:
    options: tuple[One, ...]
    chosen: str = "wait"
    why: str = "nothing is due"
    loss_s: float = 3.0
    loss_per_s: float | None = 0.25
    timing: str = "the prices"
    worst_ratio: float = 2.0


OPTIONS = Several(
    options=(
        One("wait", 0.0, 0.0, 0.0, True, "it may pass"),
        One("mend", 60.0, 0.2, 700.0, False, "takes it away", 0.05),
        One("guess", 5.0, 0.0, None, True, "who knows"),
    )
)


def shown(options: Several) -> list[str]:
    file = io.StringIO()
    print_plan(terminal(file), incident(), plan_answer("j", incident(), options))
    return file.getvalue().splitlines()


def test_each_option_is_a_row_with_its_moment() -> None:
    lines = shown(OPTIONS)
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()[:1] in (["mend"], ["guess"], ["wait"])}
    assert "lost so far: 3 s, and 25 % of the time as long as it lasts" in lines
    assert ["mend", "60", "s", "20", "%", "±", "5", "in", "12", "min"] in [line.split() for line in lines]
    assert any(line.startswith("guess") and line.endswith("not known") for line in lines)
    assert any("takes it away; cannot be undone" in line for line in lines)
    assert "chosen: wait (nothing is due)" in lines
    assert set(rows) == {"wait", "mend", "guess"}


def test_a_script_gets_the_same_and_an_empty_answer_has_the_same_keys() -> None:
    answer = plan_answer("j", incident(), OPTIONS)
    assert (answer["incident"], answer["chosen"], answer["worst_ratio"]) == ("i0", "wait", 2.0)
    assert answer["options"][1]["due_in_s"] == 700.0
    nothing = plan_answer("j", None, None)
    assert nothing == {"schema": 1, "job": "j", "incident": None, "options": [], "chosen": None}
