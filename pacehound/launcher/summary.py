"""What is said at the end of a run: health only of what was seen, and of everything else why it was not."""

from __future__ import annotations

from collections.abc import Sequence

from pacehound.launcher.watch import Outcome
from pacehound.model.events import Incident
from pacehound.model.short_job import not_judged
from pacehound.runtime.unsent import KEPT_DAYS, flush_command
from pacehound.runtime.watched import Watched

_MOST_NOTES = 3
_MOST_INCIDENTS = 5
"""A line each: what a run says at its end is to fit below the last lines of the job's own."""


def summary(outcome: Outcome, incidents_topic: str = "", how_known: str = "") -> list[str]:
    """Lines for the user.

    Parameters
    ----------
    outcome
        What is known of the run.
    incidents_topic
        Where they come out, if the run sent to Kafka.
    how_known
        The command that shows incidents with their evidence.

    """
    lines = []
    watched = outcome.watched
    reason = why_not_watched(outcome)
    if reason:
        lines.append(f"not watched: {reason}")
    elif watched is not None:
        seen = _seen(watched)
        if outcome.sent_to:
            lines.append(f"{seen}, sent to {outcome.sent_to}" if not watched.unsent else seen)
        elif outcome.incidents:
            lines.append(f"{_count(len(outcome.incidents), 'incident')} in {seen}")
        else:
            is_known = outcome.is_complete and not outcome.head_problems
            lines.append(f"no incident in what was seen: {seen}" if is_known else seen)
            if outcome.iterations is not None and (unjudged := not_judged(outcome.iterations)):
                lines.append(unjudged)
    lines += _incidents(outcome.incidents, how_known)
    if watched is not None:
        if watched.went_on:
            lines.append(
                f"{_count(watched.went_on, 'rank')} went on when the command had ended, and nobody watches what goes "
                "on in the background: let the command wait for it"
            )
        lines += _lost(watched)
        if watched.unsent:
            lines.append(_unsent(outcome, watched))
    elif outcome.kept_in is not None:
        lines.append(f"what its agent had not delivered is kept in {_kept(outcome)}")
    if not outcome.is_complete:
        lines.append("not everything that was seen had been processed when the command ended")
    lines += [f"in the head: {problem}" for problem in outcome.head_problems[:_MOST_NOTES]]
    lines += [f"in a rank: {note}" for note in outcome.notes[:_MOST_NOTES]]
    if incidents_topic:
        lines.append(f"its incidents come out of the topic {incidents_topic}, and into the store fed from it")
    return lines


def _incidents(incidents: Sequence[Incident], how_known: str) -> list[str]:
    if not incidents:
        return []
    from pacehound.pages.incidents import incident_line

    lines = [incident_line(incident) for incident in incidents[-_MOST_INCIDENTS:]]
    if len(incidents) > len(lines):
        lines.insert(0, f"the last {len(lines)} of them:")
    return [*lines, f"since when, for whom and how that is known: {how_known}"] if how_known else lines


def why_not_watched(outcome: Outcome) -> str:
    """Why nothing can be said of the run's health; empty where something can."""
    watched = outcome.watched
    if watched is None:
        return "its agent has left no word of what it saw"
    if watched.calls:
        return ""
    if outcome.why_unseen:
        return outcome.why_unseen
    if watched.ranks:
        return "no collective call of its ranks was seen"
    return (
        "the command made no call of torch.distributed"
        " (nor, with --nccl, of NCCL) in a process that can be seen from here"
    )


def _kept(outcome: Outcome) -> str:
    at_once = flush_command(outcome.sent_to) if outcome.sent_to else "pacehound flush"
    return (
        f"{outcome.kept_in} for {KEPT_DAYS} days: the next `pacehound run` to there sends it along, `{at_once}` at once"
    )


def _seen(watched: Watched) -> str:
    steps = f" in {_count(watched.iterations, 'iteration')}" if watched.iterations else ""
    return f"{_count(watched.calls, 'call')} of {_count(watched.ranks, 'rank')}{steps} on this host"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _lost(watched: Watched) -> list[str]:
    lines = []
    if watched.lost_calls:
        lines.append(f"lost before they could be read or sent: {_count(watched.lost_calls, 'record')} of calls")
    if watched.refused:
        lines.append(f"refused by the receiver for good: {_count(watched.refused, 'message')}")
    return lines


def _unsent(outcome: Outcome, watched: Watched) -> str:
    said = f" ({watched.receiver_said})" if watched.receiver_said else ""
    line = f"not sent to {outcome.sent_to or 'the head'}{said}: {_count(watched.unsent, 'message')}"
    if outcome.kept_in is None:
        return f"{line}, lost, for there was no disk to keep them"
    return f"{line}, kept in {_kept(outcome)}"
