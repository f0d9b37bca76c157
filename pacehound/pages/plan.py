"""What can be done about an incident, as a table and for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pacehound.model.events import Incident
from pacehound.pages.incidents import headline, print_parts, seconds_words


def plan_answer(job: str, incident: Incident | None, options: Any) -> dict[str, Any]:
    """What `pacehound plan --json` prints (DESIGN section 10); `options` has the fields of the actuators' answer."""
    fields: dict[str, Any] = {} if options is None else msgspec.to_builtins(options)
    return {
        "schema": 1,
        "job": job,
        "incident": None if incident is None else incident.id,
        "options": fields.pop("options", []),
        "chosen": fields.pop("chosen", None),
    } | fields


def print_plan(console: Console, incident: Incident, answer: Mapping[str, Any]) -> None:
    """The incident, a row for each option with its reason below, and which one is to be taken."""
    lost = f"lost so far: {seconds_words(answer['loss_s'])}"
    if answer["loss_per_s"]:
        lost += f", and {answer['loss_per_s'] * 100:.0f} % of the time as long as it lasts"
    title = Text.assemble(
        ("INCIDENT ", "bold"), (incident.id[:12], "bold"), f"  job {incident.job}\n", f"{_about(incident)}\n{lost}"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("action", no_wrap=True)
    for name in ("costs", "steps shorter by", "due"):
        table.add_column(name, justify="right")
    for option in answer["options"]:
        style = "bold green" if option["action"] == answer["chosen"] else ""
        table.add_row(option["action"], seconds_words(option["cost_s"]), _gain(option), _due(option), style=style)
    reasons = Table.grid(padding=(0, 2), pad_edge=False)
    reasons.add_column(style="dim", no_wrap=True)
    reasons.add_column(overflow="fold")
    for option in answer["options"][1:]:
        undo = "" if option["reversible"] else "; cannot be undone"
        reasons.add_row(option["action"], option["reason"] + undo)
    chosen = Text.assemble(("chosen: ", "dim"), (str(answer["chosen"]), "bold"), f" ({answer['why']})")
    bound = f"the moments go by {answer['timing']}; who acts at them pays at most {answer['worst_ratio']:.2f} times the"
    parts: list[RenderableType] = (
        [reasons, Text(f"{bound} least, however long it lasts", style="dim")] if answer["options"][1:] else []
    )
    print_parts(console, [title, table, chosen, *parts])


def _about(incident: Incident) -> str:
    return "; ".join(headline(finding) for finding in incident.findings if finding.relief is None)


def _gain(option: Mapping[str, Any]) -> str:
    gain, give = 100 * option["expected_gain"], 100 * option["uncertainty"]
    return f"{gain:.0f} %" + (f" ± {give:.0f}" if give >= 0.5 else "") if gain > 0 else "–"


def _due(option: Mapping[str, Any]) -> str:
    if option["due_in_s"] is None:
        return "not known"
    return "now" if option["due_in_s"] == 0 else f"in {seconds_words(option['due_in_s'])}"
