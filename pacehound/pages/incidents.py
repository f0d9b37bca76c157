"""An incident as a page for the terminal: who, since when, how much, what it costs, how we know."""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pacehound.model.events import Cost, Decision, Finding, Incident, Instant, WhatIfPrice, foremost
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.whatif_result import LEAST_SLOWDOWN_TOLD, MOST_DISCREPANCY

_NEARLY_ALL = 0.9
_MOST_SENTENCES = 10

CAUSES = {
    "H1": "did not enter a call that its peers wait in",
    "H2": "its calls differ from those of its peers",
    "H3": "everybody entered and nobody gets on",
    "S1": "computation",
    "S2": "communication",
    "S3": "computation and communication",
}
_HEADLINES = {
    "slow": "slows the job down",
    "hang": "holds the job up",
    "exit": "has left the job",
    "intermittent": "slows the job down again and again",
    "change": "changed the work of the job",
    "planned": "pauses as planned",
    "blind": "cannot be watched",
}
_MADE_THEM_LEAVE = "made the job fail"
_OF_SEVERAL = {"slows ": "slow ", "holds ": "hold ", "has ": "have ", "pauses ": "pause "}
_STATES = {"open": "bold red", "relieved": "yellow", "closed": "green"}


def incidents_answer(incidents: Iterable[Incident], decisions: Iterable[Decision]) -> dict[str, Any]:
    """What `pacehound incidents --json` prints (DESIGN section 10), with the decisions about each incident."""
    known = list(decisions)
    answer = []
    for incident in incidents:
        fields = msgspec.to_builtins(incident)
        fields["decisions"] = [msgspec.to_builtins(d) for d in known if d.incident == incident.id]
        answer.append(fields)
    return {"schema": 1, "incidents": answer}


def incident_page(
    incident: Incident, decisions: Sequence[Decision] = (), on_gpus: Container[str] = (), measured: str = ""
) -> RenderableType:
    """One incident: a title, then a block for each finding, then what it costs and what would be done.

    `on_gpus` names the jobs that are known to run on GPUs: the hours of others are rank-hours. `measured` is what a
    validation found meanwhile.
    """
    title = Text.assemble(
        ("INCIDENT ", "bold"),
        (incident.id[:12], "bold"),
        "  ",
        (_state(incident), _STATES[incident.state]),
        f"\njob {incident.job}" + (f", attempt {incident.attempt}" if incident.attempt else ""),
    )
    parts: list[RenderableType] = [title]
    for finding in incident.findings:
        closed = incident.state == "closed"
        ongoing = f"the end of what was seen ({incident.closed_why or 'closed'})" if closed else "it goes on"
        parts.append(Padding(finding_block(finding, title=headline(finding), ongoing=ongoing), (1, 0, 0, 2)))
    facts = Table.grid(padding=(0, 2), pad_edge=False)
    facts.add_column(style="dim", no_wrap=True, min_width=9)
    facts.add_column(overflow="fold")
    if cost := cost_words(incident.cost, is_on_gpus=incident.job in on_gpus):
        facts.add_row("cost", Text(cost))
    if measured:
        facts.add_row("measured", Text(measured))
    # In order, so the last word stands.
    latest = {(d.action, bool(d.joined)): d for d in decisions if d.incident == incident.id}
    for decision in latest.values():
        facts.add_row("would do" if not decision.taken else "did", Text(decision_words(decision)))
    if facts.row_count:
        parts.append(Padding(facts, (1 if len(incident.findings) > 1 else 0, 0, 0, 2)))
    return Group(*parts)


def print_incidents(
    console: Console,
    incidents: Sequence[Incident],
    decisions: Sequence[Decision],
    on_gpus: Container[str] = (),
    measured: Mapping[str, str] | None = None,
) -> None:
    """All of them, with a blank line between; `measured` by the id of the incident."""
    told = measured or {}
    print_parts(console, [incident_page(one, decisions, on_gpus, told.get(one.id, "")) for one in incidents])


def print_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Parts of a page, with a blank line between; in a file no line ends in blanks."""
    with console.capture() as captured:
        for number, part in enumerate(parts):
            if number:
                console.print()
            console.print(part)
    text = captured.get()
    if not console.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    console.file.write(text)


def headline(finding: Finding) -> str:
    """Who did what, in one line.

    >>> headline(Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,)))
    'Rank 2 slows the job down: computation (S1)'
    >>> headline(Finding(id="f", job="j", attempt=0, kind="hang", verdict="suspected", cause=None, culprits=(2, 5)))
    'Probably ranks 2, 5 hold the job up'
    """
    cause = f": {CAUSES[finding.cause]} ({finding.cause})" if finding.cause else ""
    # Who made ranks leave need not have left.
    did = _MADE_THEM_LEAVE if finding.kind == "exit" and finding.cause else _HEADLINES[finding.kind]
    if len(finding.culprits) > 1:
        did = next((did.replace(one, many, 1) for one, many in _OF_SEVERAL.items() if did.startswith(one)), did)
    return f"{_who(finding)} {did}{cause}"


def incident_line(incident: Incident) -> str:
    """An incident in one line: what its foremost finding says, since when, until when, and what it has cost."""
    finding = foremost(incident.findings)
    if finding is None:
        return "no finding"
    words = f"{headline(finding)} [{finding.verdict}]"
    if finding.onset is not None and finding.onset.step is not None:
        end = None if finding.relief is None else finding.relief.step
        words += f", step {finding.onset.step} to {'the end' if end is None else end}"
    if incident.cost.excess_s:
        words += f", {seconds_words(incident.cost.excess_s)} lost by each of {incident.cost.ranks} ranks"
    return words


def when_words(instant: Instant) -> str:
    """An instant as step and UTC time; 0 is no time.

    >>> when_words(Instant(step=200, time_ns=10**18)), when_words(Instant(step=200, time_ns=0))
    ('step 200, 2001-09-09 01:46:40 UTC', 'step 200')
    """
    if not instant.time_ns and instant.step is not None:
        return f"step {instant.step}"
    moment = datetime.datetime.fromtimestamp(instant.time_ns / 1e9, datetime.UTC)
    step = "" if instant.step is None else f"step {instant.step}, "
    return f"{step}{moment:%Y-%m-%d %H:%M:%S} UTC"


def cost_words(cost: Cost, *, is_on_gpus: bool = False) -> str:
    """What it has cost, or nothing where it is not known.

    >>> cost_words(Cost(excess_s=90.0, ranks=8, gpu_hours=0.2))
    '90 s lost by each of 8 ranks = 0.2 rank-hours'
    """
    if not cost.excess_s and not cost.gpu_hours:
        return ""
    hours = f"{cost.gpu_hours:.1f}" if cost.gpu_hours >= 1 else f"{cost.gpu_hours:.2g}"
    unit = "GPU-hours" if is_on_gpus else "rank-hours"
    lost = f"{seconds_words(cost.excess_s)} lost by each of {cost.ranks} ranks = {hours} {unit}"
    return f"{lost}; {price_words(cost.what_if)}" if cost.what_if is not None else lost


def price_words(price: WhatIfPrice) -> str:
    """What the stragglers of a window take, and what the best fix would give back.

    >>> from pacehound.model import events
    >>> price_words(WhatIfPrice(job="j", attempt=0, time_ns=0, first_step=8, last_step=64, n_steps=8, ranks=4,
    ...     recorded_s=2.0, original_s=1.98, ideal_s=1.5, slowdown=1.32, waste=0.242, discrepancy=0.01,
    ...     fixes=(events.FixPrice(what="stage", name="1", ranks=(2, 3), step_time_s=1.39, gain=0.298),
    ...            events.FixPrice(what="worker", name="dp 0, stage 1", ranks=(2,), step_time_s=1.4, gain=0.293),)))
    'in steps 8 to 64, worker dp 0, stage 1 (rank 2) as the others are would give back 29 % of the step time'
    """
    window = f"in steps {price.first_step} to {price.last_step}"
    if price.discrepancy > MOST_DISCREPANCY:
        return f"{window}, the simulation is {price.discrepancy:.0%} off: it prices nothing"
    best_gain = max((fix.gain for fix in price.fixes), default=0.0)
    if best_gain < LEAST_SLOWDOWN_TOLD - 1:
        return f"{window}, no single worker, stage or operation type explains it"
    # A stage gives back what its slow worker does: the smallest part that explains nearly all of it is named.
    enough = [fix for fix in price.fixes if fix.gain >= _NEARLY_ALL * best_gain]
    best = min(enough, key=lambda fix: (len(fix.ranks) or price.ranks, -fix.gain))
    who = f" ({ranks_words(best.ranks)})" if best.ranks else ""
    as_what = "as the others are" if best.what != "optype" else "without its stragglers"
    return f"{window}, {best.what} {best.name}{who} {as_what} would give back {100 * best.gain:.0f} % of the step time"


def decision_words(decision: Decision) -> str:
    """What would be done, why and at what price; of nothing there is no price."""
    lost = f"lost {'in all' if decision.is_last else 'so far'} {seconds_words(decision.loss_s)}"
    if decision.action == "ignore":
        return f"ignore: {decision.reason}" + ("" if decision.is_last else f"; {lost}")
    how = "" if decision.taken else f" ({decision.mode} mode: not done)"
    if decision.until_ns:
        how = f" (waits for a yes: pacehound approve {decision.identity()[:12]})"
    elif decision.by:
        how = f" ({'approved' if decision.taken else 'said'} by {decision.by})"
    price = f"price {seconds_words(decision.price_s)}, {lost}"
    others = f"; else there would be {'; '.join(decision.alternatives)}" if decision.alternatives else ""
    limit = f"; {decision.limit}" if decision.limit not in decision.reason else ""
    return f"{decision.action.replace('_', ' ')}: {decision.reason}{limit}; {price}{how}{others}"


def seconds_words(seconds: float) -> str:
    """A duration a person can take in.

    >>> seconds_words(0.25), seconds_words(42.0), seconds_words(7300.0)
    ('0.25 s', '42 s', '2 h 2 min')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _who(finding: Finding) -> str:
    if finding.culprits:
        name = ranks_words(finding.culprits)
        return name[0].upper() + name[1:] if finding.verdict == "culprit" else f"Probably {name}"
    if finding.links:
        links = ", ".join(f"{a} - {b}" for a, b in finding.links)
        return f"{'The' if finding.verdict == 'culprit' else 'Probably the'} link between ranks {links}"
    if finding.kind == "exit":
        return "Somebody"
    return "Something" if finding.kind in ("slow", "hang", "intermittent") else "The job"


def _state(incident: Incident) -> str:
    if incident.state == "closed":
        return f"CLOSED ({incident.closed_why})" if incident.closed_why else "CLOSED"
    return incident.state.upper()


def finding_block(finding: Finding, *, title: str, ongoing: str) -> RenderableType:
    """One finding: what it is, then since when, until when, how much, how we know.

    Parameters
    ----------
    finding
        What was concluded.
    title
        What it is, in one line.
    ongoing
        Stands for the end of one that has none.

    """
    facts = Table.grid(padding=(0, 2), pad_edge=False)
    facts.add_column(style="dim", no_wrap=True, min_width=9)
    facts.add_column(overflow="fold")
    if finding.onset is not None:
        noticed = ""
        if finding.detected is not None and finding.detected.step is not None:
            noticed = f" (noticed at step {finding.detected.step})"
        facts.add_row("since", when_words(finding.onset) + noticed)
    facts.add_row("until", when_words(finding.relief) if finding.relief is not None else ongoing)
    if finding.magnitude is not None:
        longer = "longer" if finding.magnitude >= 0 else "less long"
        facts.add_row("how much", f"an iteration takes {abs(finding.magnitude) * 100:.0f} % {longer}")
    if finding.candidates:
        facts.add_row("one of", ranks_words(finding.candidates))
    if finding.victims:
        facts.add_row("waiting", ranks_words(finding.victims))
    for name, sentences in (
        ("evidence", tuple(piece.words for piece in finding.evidence)),
        ("not seen", finding.unseen),
    ):
        for number, sentence in enumerate(sentences[:_MOST_SENTENCES]):
            facts.add_row(name if number == 0 else "", Text(sentence))
        if len(sentences) > _MOST_SENTENCES:
            facts.add_row("", f"… and {len(sentences) - _MOST_SENTENCES} more (--json has them all)")
    line = Text(title, style="bold")
    line.append(f"  [{finding.verdict}]", style="dim")
    return Group(line, facts)
