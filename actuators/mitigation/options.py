"""The options for an open incident: what each costs and gives, when it is due, and which one is to be taken now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from actuators.mitigation.actions import AGAINST_PATTERNS, IGNORE, RESUME_RANK, Action
from actuators.mitigation.history import PastIncident, like
from actuators.mitigation.loss import candidates_for, due_at, gravest, loss_of, loss_rate, what_words, why_nothing
from actuators.mitigation.option import Option
from actuators.mitigation.prices import Measured, price_of
from actuators.mitigation.resume import plan_resume
from actuators.mitigation.ski_rental import Switches, switches
from actuators.mitigation.survival import kaplan_meier
from actuators.mitigation.thresholds import HOPELESS_AFTER_S, LEAST_PAST
from pacehound.model.events import Finding, Incident
from pacehound.model.evidence.straggling import Mend, Straggles
from pacehound.model.whatif_result import MOST_DISCREPANCY

_HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What can be done.

    Attributes
    ----------
    options
        `ignore` first, then by price.
    chosen
        The action to be taken now; `ignore` until one is due.
    why
        Why that one.
    loss_s
        Lost by now.
    loss_per_s
        Of each second; `None` where nothing tells.
    timing
        What the moments go by.
    worst_ratio
        What is paid is at most so many times what would be paid by somebody who knew how long it lasts.

    """

    options: tuple[Option, ...]
    chosen: str
    why: str
    loss_s: float
    loss_per_s: float | None
    timing: str
    worst_ratio: float


def options_for(
    incident: Incident,
    *,
    measured: Measured | None = None,
    past: Sequence[PastIncident] = (),
    hosts: frozenset[str] = frozenset(),
    taken: Collection[str] = (),
    heard_ns: int = 0,
) -> Options | None:
    """What can be done about an incident that is open; `None` where it calls for nothing.

    Parameters
    ----------
    incident
        Its latest version.
    measured
        The job's own prices.
    past
        Earlier incidents of its kind and cause.
    hosts
        Of those that are named.
    taken
        Actions that have been taken about it.
    heard_ns
        When its job was last heard of: the loss has grown until then.

    """
    finding = gravest(incident.findings)
    if incident.state != "open" or finding is None:
        return None
    known = measured or Measured()
    rate = loss_rate(incident, finding)
    ahead_s = max(heard_ns - incident.time_ns, 0) / 1e9
    loss_s = loss_of(incident, finding) + ahead_s * (rate or 0.0)
    candidates = (*candidates_for(finding), *_against_pattern(finding))
    priced = [(action, *price_of(action, known)) for action in candidates if action.name not in taken]
    priced.sort(key=lambda one: one[1])
    gains = {action.name: _gain(action, incident, finding, rate) for action, _, _ in priced}
    moments, timing = _moments(finding, [price for _, price, _ in priced], _left(priced, gains, rate), past, hosts)
    options = [
        Option(
            action=IGNORE.name,
            cost_s=0.0,
            expected_gain=0.0,
            due_in_s=0.0,
            reversible=True,
            reason=IGNORE.effect,
        )
    ]
    for (action, price_s, source), at_s in zip(priced, moments.losses_s, strict=True):
        gain, give, gain_source = gains[action.name]
        when = f"due at a loss of {at_s:.3g} s" if at_s < 100 else f"due at a loss of {at_s:,.0f} s"
        due_in_s = 0.0 if loss_s >= at_s else (at_s - loss_s) / rate if rate else None
        options.append(
            Option(
                action=action.name,
                cost_s=price_s,
                expected_gain=gain,
                due_in_s=due_in_s,
                reversible=action.reversible,
                reason=f"{action.effect}; price: {source}; gain: {gain_source}; {when}",
                uncertainty=give,
            )
        )
    done = [action.name for action in candidates if action.name in taken]
    chosen, why = _choose(options, finding, [action for action, _, _ in priced], done)
    return Options(
        options=tuple(options),
        chosen=chosen,
        why=why,
        loss_s=loss_s,
        loss_per_s=rate,
        timing=timing,
        worst_ratio=moments.worst_ratio,
    )


Gain = tuple[float, float, str]
"""The share by which iterations become shorter, by how much that may be wrong, and where it comes from."""


def _gain(action: Action, incident: Incident, finding: Finding, rate: float | None) -> Gain:
    if action is RESUME_RANK:
        if plan_resume(finding) is None:
            return 0.0, 0.0, "no process of a culprit is known to be stopped"
        return 1.0, 0.0, "the process of a culprit is stopped"
    if action in _against_pattern(finding):
        mends = [piece.gain for piece in finding.evidence if isinstance(piece, Mend) and piece.gain]
        source = "simulated" if mends else f"not simulated for this job; {action.removes_source}"
        return max(mends, default=0.0), 0.0, source
    price = incident.cost.what_if
    if action.removes == 1.0 and finding.kind == "slow" and price and price.discrepancy <= MOST_DISCREPANCY:
        fixes = [f for f in price.fixes if f.what == "worker" and set(finding.culprits) & set(f.ranks)]
        if fixes:
            return fixes[0].gain, price.discrepancy, "the what-if simulation of its recorded steps"
    if rate is None:
        return 0.0, action.removes, "not known: nothing tells how much is lost in a second"
    words = (
        f"{100 * action.removes:.0f} % of the {100 * rate:.0f} % of its time that it loses ({action.removes_source})"
    )
    return rate * action.removes, rate * action.removes_give, words


def _against_pattern(finding: Finding) -> tuple[Action, ...]:
    """What helps against a pattern of many ranks, of which no rank is to blame."""
    patterns = {piece.cause for piece in finding.evidence if isinstance(piece, Straggles)}
    return tuple(action for pattern in sorted(patterns) for action in AGAINST_PATTERNS.get(pattern, ()))


def _left(priced: Sequence[tuple[Action, float, str]], gains: dict[str, Gain], rate: float | None) -> list[float]:
    """Loss per second before any action and after each; what an earlier one gave stays."""
    left = [rate or 0.0]
    for action, _, _ in priced:
        left.append(max(min(left[-1], left[0] - gains[action.name][0]), 0.0))
    return left


def _moments(
    finding: Finding,
    prices_s: Sequence[float],
    left: Sequence[float],
    past: Sequence[PastIncident],
    hosts: frozenset[str],
) -> tuple[Switches, str]:
    """At which loss each action is due, and what that goes by."""
    if finding.kind == "hang":
        losses = tuple(due_at(price_s, finding) for price_s in prices_s)
        found = switches(prices_s, left)
        words = f"the prices, or the {HOPELESS_AFTER_S:g} s after which hardly any hang recovers"
        return Switches(losses_s=losses, worst_ratio=found.worst_ratio), words
    hour = (finding.onset.time_ns // _HOUR_NS) % 24 if finding.onset is not None else 0
    durations, alike = like(past, hosts, hour)
    curve = kaplan_meier(durations)
    found = switches(prices_s, left, curve)
    if found.expected_s is None or found.expected_without_s is None:
        n = 0 if curve is None else curve.n_ended
        return found, f"the prices ({LEAST_PAST} earlier ones that have ended are needed to go by them; there are {n})"
    assert curve is not None
    n = curve.n_ended + curve.n_cut_off
    if found.losses_s == tuple(prices_s):
        return found, f"the prices (how long {n} {alike} lasted does not promise enough to go by it)"
    saves = f"{100 * (1 - found.expected_s / found.expected_without_s):.0f} %"
    return found, f"how long {n} {alike} lasted: {saves} cheaper on average than at the prices"


def _choose(
    options: Sequence[Option], finding: Finding, actions: Sequence[Action], done: Sequence[str]
) -> tuple[str, str]:
    """The due one that leaves least loss, of equals the cheapest; those that would give nothing are passed over."""
    if not actions and (words := why_nothing(finding, actions)):
        no_more = f"{', '.join(done)} was done about {what_words(finding)}, and nothing else is known to help"
        return IGNORE.name, no_more if done else words
    due = [one for one in options[1:] if one.due_in_s == 0.0 and one.expected_gain > 0]
    if due:
        best = max(due, key=lambda one: (one.expected_gain, -one.cost_s))
        return best.action, f"of what is due it leaves the least of {what_words(finding)}"
    coming = [one for one in options[1:] if one.due_in_s and one.expected_gain > 0]
    if not coming:
        return IGNORE.name, f"nothing that would help is due for {what_words(finding)}"
    first = min(coming, key=lambda one: one.due_in_s or 0.0)
    return IGNORE.name, f"{first.action} is due in {first.due_in_s:.0f} s if {what_words(finding)} goes on"
