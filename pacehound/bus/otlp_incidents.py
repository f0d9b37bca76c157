"""An incident and what was decided about it, as one OpenTelemetry trace, linked with the rounds around it.

The trace id is the incident's own id: 32 hexadecimal digits. Its root is the incident from its onset to its end, told
when it ends; below it stand its opening (from the onset to when it was said: the delay of the detection) and each
decision. Ids are computed, so that who tells again tells the same. Needs opentelemetry-sdk.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

from pacehound.bus.otlp_spans import SPAN_ID_BYTES, span_context
from pacehound.model.events import Decision, Incident
from pacehound.model.identity import digest
from pacehound.model.plain import plain

MAX_LINKS = 128
"""OpenTelemetry's own limit for the links of a span; what takes spans drops further ones."""


def context_of_incident(incident_id: str) -> SpanContext:
    """The root of an incident's trace, to point to.

    >>> hex(context_of_incident("00112233445566778899aabbccddeeff").trace_id)
    '0x112233445566778899aabbccddeeff'
    """
    return _context(incident_id, "incident")


def opened_span(incident: Incident, rounds: Sequence[SpanContext] = ()) -> ReadableSpan:
    """From its onset to when it was said, with links to rounds around the onset."""
    return _span(incident, "opened", incident.opened_ns, incident.time_ns, rounds, is_root=False)


def closed_span(incident: Incident, rounds: Sequence[SpanContext] = ()) -> ReadableSpan:
    """All of it, from its onset to its end: the root."""
    return _span(incident, "incident", incident.opened_ns, incident.closed_ns or incident.time_ns, rounds, is_root=True)


def decision_span(decision: Decision, rounds: Sequence[SpanContext] = ()) -> ReadableSpan:
    """What was decided, at one instant."""
    return ReadableSpan(
        name=f"decision: {plain(decision.action)}",
        context=_context(decision.incident, decision.identity()),
        parent=_context(decision.incident, "incident"),
        resource=Resource({"service.name": decision.job}),
        attributes={
            "pacehound.job": decision.job,
            "pacehound.attempt": decision.attempt,
            "pacehound.incident": decision.incident,
            "pacehound.reason": decision.reason,
            "pacehound.mode": decision.mode,
            "pacehound.taken": decision.taken,
            "pacehound.price_s": decision.price_s,
            "pacehound.loss_s": decision.loss_s,
        },
        links=[Link(one) for one in rounds[:MAX_LINKS]],
        start_time=decision.time_ns,
        end_time=decision.time_ns,
    )


def named_ranks(incident: Incident) -> frozenset[int]:
    """Whom its findings name, and the ends of the links that they name."""
    ends = {rank for finding in incident.findings for link in finding.links for rank in link}
    return frozenset(ends | {rank for finding in incident.findings for rank in finding.culprits})


def _span(
    incident: Incident, what: str, begin_ns: int, end_ns: int, rounds: Sequence[SpanContext], *, is_root: bool
) -> ReadableSpan:
    causes = dict.fromkeys(one.cause for one in incident.findings if one.cause)
    kinds = dict.fromkeys(one.kind for one in incident.findings)
    return ReadableSpan(
        name=f"{what}: {', '.join(kinds) or 'unknown'}",
        context=_context(incident.id, what),
        parent=None if is_root else _context(incident.id, "incident"),
        resource=Resource({"service.name": incident.job}),
        attributes={
            "pacehound.job": incident.job,
            "pacehound.attempt": incident.attempt,
            "pacehound.incident": incident.id,
            "pacehound.state": incident.state,
            "pacehound.causes": list(causes),
            "pacehound.culprits": sorted(named_ranks(incident)),
            "pacehound.excess_s": incident.cost.excess_s,
            "pacehound.closed_why": incident.closed_why or "",
        },
        links=[Link(one) for one in rounds[:MAX_LINKS]],
        status=Status(StatusCode.ERROR, ", ".join([*causes, *kinds])),
        start_time=begin_ns,
        end_time=max(begin_ns, end_ns),
    )


def _context(incident_id: str, what: str) -> SpanContext:
    try:
        trace_id = bytes.fromhex(incident_id)
    except ValueError:
        trace_id = b""
    if len(trace_id) != 16 or not any(trace_id):  # of another producer
        trace_id = digest("incident", incident_id)
    return span_context(trace_id, digest("span", incident_id, what)[:SPAN_ID_BYTES])
