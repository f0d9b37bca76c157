"""What dashboards share: tables with units by the names of columns, links to the page, variables, annotations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grafana_foundation_sdk.builders import dashboard, table
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    DashboardLinkType,
    DynamicConfigValue,
    VariableHide,
    VariableRefresh,
)

from grafana.clickhouse import SOURCE, Target, sql_of

PAGE_URL = "https://localhost:4319"
TRACES_URL = "http://localhost:16686"
WIDE, HALF, TALL = 24, 12, 9

_UNITS = {
    "/_s$/": "s",
    "/^(share|share_shorter|mean_delay|delay|recovered|magnitude)$/": "percentunit",
    "/(_hours|hours_between)$/": "none",
}
_DIGITS = 3
_VALUE = "${__value.text:percentencode}"


class Annotation(AnnotationQuery, Builder[AnnotationQuery]):
    """Incidents, on the time axis of every panel."""

    def __init__(self, of_all: Iterable[str]) -> None:
        super().__init__(name="Incidents", datasource=SOURCE, enable=True, icon_color="red")
        self._target = Target(sql_of("grafana/annotations", of_all=of_all))

    def build(self) -> AnnotationQuery:
        """Itself."""
        return self

    def to_json(self) -> dict[str, object]:
        """As in a dashboard's JSON: the target is a query like any other."""
        return {**super().to_json(), "target": self._target}


def dashboard_of(uid: str, title: str, *, since: str, of_all: Iterable[str] = ()) -> dashboard.Dashboard:
    """An empty one, with the variables for links to the page and to traces, and incidents as annotations."""
    page = dashboard.TextBoxVariable("page_url").label("Page").default_value(PAGE_URL)
    traces = dashboard.TextBoxVariable("traces_url").label("Jaeger").default_value(TRACES_URL)
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .tags(["pacehound"])
        .timezone("utc")
        .readonly()
        .refresh("1m")
        .time(since, "now")
        .with_variable(page)
        .with_variable(traces)
        .annotation(Annotation(of_all))
        .link(
            dashboard.DashboardLink("Pacehound")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["pacehound"])
            .as_dropdown(True)
        )
    )


def variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """One whose values a named query gives, asked again with each span of time."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(sql_of(query))
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .hide(VariableHide.DONT_HIDE)
    )


def table_of(
    title: str, about: str, query: str, *, of_all: Iterable[str] = (), moments: Iterable[str] = (), width: int = WIDE
) -> table.Panel:
    """A named query as a table; incidents and jobs in it lead to the page."""
    panel = (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .with_target(Target(sql_of(query, of_all=of_all, moments=moments)))
        .span(width)
        .height(TALL)
        .decimals(_DIGITS)
        .no_value("nothing")
    )
    for pattern, unit in _UNITS.items():
        panel = panel.override_by_regexp(pattern, [DynamicConfigValue(id_val="unit", value=unit)])
    for column, path in (("job", "job"), ("id", "incident"), ("incident", "incident")):
        links = [_link("On the page", f"${{page_url}}/#/{path}/{_VALUE}")]
        if path == "incident":
            links.append(_link("Its rounds in Jaeger", f"${{traces_url}}/trace/{_VALUE}"))
        panel = panel.override_by_name(column, [DynamicConfigValue(id_val="links", value=links)])
    return panel


def _link(title: str, url: str) -> dict[str, Any]:
    return {"title": title, "url": url, "targetBlank": True}
