"""The fleet: how often, by what, for how long, at what price, on which hosts."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.parts import HALF, WIDE, dashboard_of, table_of
from storage.named_queries import query_about

_MOMENTS = {"hosts": ["last_ns"], "gpus": ["last_ns"], "actions": ["acted_ns"]}
_WIDE = {"delays", "actions"}
_TITLES = {
    "losses": "Lost by week and cause",
    "rates": "How often",
    "causes": "By month, kind and cause",
    "occurrence": "Runs by size and by what slowed them down",
    "durations": "How long",
    "duration_histogram": "How long slowness lasts",
    "detection": "How soon it is noticed",
    "hosts": "Hosts that come back",
    "gpus": "Cards that come back",
    "delays": "Runs that were delayed",
    "actions": "What actions did",
}


def fleet() -> Dashboard:
    """The dashboard."""
    found = dashboard_of("pacehound-fleet", "Pacehound: fleet", since="now-30d", of_all=["job"])
    found = found.with_panel(
        table_of("Incidents", query_about("grafana/incidents"), "grafana/incidents", of_all=["job"])
    )
    for name, title in _TITLES.items():
        query = f"fleet/{name}"
        width = WIDE if name in _WIDE else HALF
        panel = table_of(title, query_about(query), query, moments=_MOMENTS.get(name, []), width=width)
        found = found.with_panel(panel)
    return found
