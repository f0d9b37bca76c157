"""One job: its iteration times with its incidents on them, and what was decided."""

from __future__ import annotations

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.clickhouse import SOURCE, Target, sql_of
from grafana.parts import TALL, WIDE, dashboard_of, table_of, variable
from storage.named_queries import query_about


def job() -> Dashboard:
    """The dashboard."""
    times = (
        timeseries.Panel()
        .title("Iteration times")
        .description(query_about("grafana/iterations"))
        .datasource(SOURCE)
        .unit("s")
        .min(0)
        .span(WIDE)
        .height(TALL + 3)
        .with_target(Target(sql_of("grafana/iterations"), is_series=True))
    )
    return (
        dashboard_of("pacehound-job", "Pacehound: job", since="now-1d")
        .with_variable(variable("job", "Job", "grafana/jobs"))
        .with_variable(variable("attempt", "Attempt", "grafana/attempts"))
        .with_panel(times)
        .with_panel(table_of("Incidents", query_about("grafana/incidents"), "grafana/incidents"))
        .with_panel(table_of("Decisions", query_about("grafana/decisions"), "grafana/decisions", of_all=["incident"]))
    )
