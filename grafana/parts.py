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

PAGE_URL = "http://localhost:4319"
WIDE, HALF, TALL = 24, 12, 9

_UNITS = {
    "/_s$/": "s",
    "/^(share|share_shorter|mean_delay|delay|recovered|magnitude)$/": "percentunit",
    "/(_hours|hours_between)$/": "none",
}
_DIGITS = 3


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
    """An empty one, with the variable for links to the page, and incidents as annotations."""
    page = dashboard.TextBoxVariable("page_url").label("Page").default_value(PAGE_URL)
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .tags(["pacehound"])
        .timezone("utc")
        .readonly()
        .refresh("1m")
        .time(since, "now")
        .with_variable(page)
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
        panel = panel.override_by_name(column, [_link("On the page", f"#/{path}/${{__value.text:percentencode}}")])
    return panel


def _link(title: str, fragment: str) -> DynamicConfigValue:
    link: dict[str, Any] = {"title": title, "url": f"${{page_url}}/{fragment}", "targetBlank": True}
    return DynamicConfigValue(id_val="links", value=[link])
