"""`pacehound plan`: what could be done about the open incident of a job, what it costs, and when it is due."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import json_option, print_json, say, set_option, store_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings

if TYPE_CHECKING:
    from actuators.mitigation.options import Options
    from pacehound.cli.history import History
    from pacehound.model.events import Decision, Incident


@click.command()
@click.option("--job", help="Of this job.  [default: the one whose incident was opened last]")
@store_option
@set_option
@json_option
def plan(job: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show what can be done about the open incident of a job: prices, gains, when each is due. Nothing is done.

    Prices are the job's own where its checkpoints, restarts and holds were seen. How long earlier incidents of the kind
    lasted, in all jobs of the store, moves the moments. They are asked of a folder, or of the server of `store.url`.
    """
    from pacehound.cli.history import history
    from pacehound.cli.known_jobs import known_jobs
    from pacehound.pages.plan import plan_answer, print_plan
    from pacehound.pages.terminal import terminal

    settings = Settings.load(os.environ, overrides)
    with history(store, settings.store) as answers:
        jobs = known_jobs(answers, job)
        if not jobs:
            what = f"nothing is known of job {job!r}" if job else "there is no job"
            raise InvalidInput(
                f"{what} in this store; `pacehound sql` shows what is: SELECT DISTINCT job FROM topology"
            )
        found, decisions = answers.incidents(job)
        incident = next((one for one in found if one.state == "open"), None)
        named = incident.job if incident else jobs[0].job
        found = [one for one in found if one.job == named]
        options = _options(answers, incident, decisions) if incident else None
    if as_json:
        print_json(plan_answer(named, incident, options))
    elif incident is None or options is None:
        last = f"; the last one was closed ({found[0].closed_why or found[0].state})" if found else ""
        none = "its open incident calls for nothing" if incident else f"no incident of it is open{last}"
        say(f"job {named}: {none}")
    else:
        print_plan(terminal(sys.stdout), incident, plan_answer(named, incident, options))


def _options(answers: History, incident: Incident, decisions: list[Decision]) -> Options | None:
    """Ask the store for what the plan needs."""
    from actuators.mitigation.history import PastIncident
    from actuators.mitigation.loss import aim_of, gravest
    from actuators.mitigation.options import options_for
    from actuators.mitigation.prices import Measured
    from actuators.mitigation.survival import Past

    finding = gravest(incident.findings)
    if finding is None:
        return None
    of_kind = {"kind": finding.kind, "cause": finding.cause or "not named"}
    asked = of_kind | {"incident": incident.id, "before_ns": incident.opened_ns}
    past = [
        PastIncident(
            past=Past(duration_s=row["duration_s"], has_ended=bool(row["has_ended"])),
            hosts=frozenset(row["hosts"]),
            hour=row["hour"],
        )
        for row in answers.ask("plan/past", asked).to_pylist()
    ]
    (row,) = answers.ask("plan/measured", {"job": incident.job}).to_pylist()
    heard_ns = row["heard_ns"] or 0
    places = answers.ask("plan/places", {"job": incident.job, "attempt": incident.attempt}).to_pylist()
    aim = set(aim_of(finding))
    return options_for(
        incident,
        measured=Measured.of_row(row),
        past=past,
        hosts=frozenset(row["host"] for row in places if row["rank"] in aim),
        taken={one.action for one in decisions if one.incident == incident.id and one.taken},
        heard_ns=heard_ns,
    )
