"""One incident: what is known of it and how, what was said of it in turn, who was told, what was decided."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.parts import HALF, dashboard_of, table_of, variable
from storage.named_queries import query_about


def incident() -> Dashboard:
    """The dashboard."""
    return (
        dashboard_of("pacehound-incident", "Pacehound: incident", since="now-30d", of_all=["job"])
        .with_variable(variable("incident", "Incident", "grafana/incident_names"))
        .with_panel(table_of("What is known", query_about("grafana/findings"), "grafana/findings"))
        .with_panel(table_of("What was said", query_about("grafana/versions"), "grafana/versions", width=HALF))
        .with_panel(
            table_of(
                "Who was told",
                query_about("page/notifications"),
                "page/notifications",
                moments=["sent_ns"],
                width=HALF,
            )
        )
        .with_panel(table_of("Decisions", query_about("grafana/decisions"), "grafana/decisions", of_all=["job"]))
    )
