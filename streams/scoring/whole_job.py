"""A whole job's events through the pipeline: what there is to say about it in the end."""

from __future__ import annotations

from collections.abc import Iterable

from pacehound.model.events import Finding, Incident
from pacehound.model.routing import Event
from pacehound.settings import Settings
from streams.pipeline import Pipeline


def findings_of_job(events: Iterable[Event], settings: Settings) -> list[Finding]:
    """The last version of every finding of every incident of a job."""
    pipeline = Pipeline(settings)
    latest: dict[str, Finding] = {}
    for event in events:
        for incident in pipeline.on_event(event):
            if isinstance(incident, Incident):
                latest |= {finding.id: finding for finding in incident.findings}
    return list(latest.values())
