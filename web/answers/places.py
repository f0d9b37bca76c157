"""Where a job's ranks are: hosts, communicators, and who is named just now."""

from __future__ import annotations

from typing import Any

from pacehound.model.events import foremost
from web.source import Source


def places(source: Source, job: str, attempt: int) -> dict[str, Any]:
    """The communicators of an attempt with their members, and the host of each rank."""
    host_of: dict[int, str] = {}
    communicators = []
    for row in source.rows("page/places", job=job, attempt=attempt):
        for host, ranks in zip(row["hosts"], row["ranks_of_hosts"], strict=True):
            host_of.update(dict.fromkeys(ranks, host))
        members = [rank for rank in row["members"] if rank >= 0]
        kept = {key: row[key] for key in ("communicator", "name", "backend", "is_world")}
        communicators.append({**kept, "members": members})
    hosts: dict[str, list[int]] = {}
    for rank, host in sorted(host_of.items()):
        hosts.setdefault(host, []).append(rank)
    named: dict[str, set[int]] = {"culprits": set(), "candidates": set(), "victims": set()}
    links: set[tuple[int, int]] = set()
    for incident in source.incidents(job):
        if incident.attempt == attempt and incident.state != "closed":
            finding = foremost(incident.findings)
            if finding is not None:
                named["culprits"] |= set(finding.culprits)
                named["candidates"] |= set(finding.candidates)
                named["victims"] |= set(finding.victims)
                links |= set(finding.links)
    return {
        "hosts": [{"host": host, "ranks": ranks} for host, ranks in sorted(hosts.items())],
        "communicators": communicators,
        "named": {key: sorted(ranks) for key, ranks in named.items()},
        "links": sorted(links),
    }
