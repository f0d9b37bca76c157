"""The pipeline itself, by its own metrics in Prometheus: what waits, what is away, what was refused, how late it is."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import prometheus, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import DataSourceRef

from grafana.parts import HALF, TALL, dashboard_of
from pacehound.runtime import metric_names as names
from pacehound.runtime.metric_names import Metric

SOURCE = DataSourceRef(type_val="prometheus", uid="pacehound-prometheus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A panel: an expression over one or two metrics, with `{}` for their names in order."""

    title: str
    expression: str
    metrics: tuple[Metric, ...]
    legend: str
    unit: str = "short"

    @property
    def promql(self) -> str:
        """As Prometheus is asked."""
        return self.expression.format(*(metric.name for metric in self.metrics))


SERIES = (
    Series(
        title="Something that a worker needs is away",
        expression="max by (worker) ({})",
        metrics=(names.AWAY,),
        legend="{{worker}}",
    ),
    Series(
        title="Messages that wait",
        expression="sum by (job) ({})",
        metrics=(names.LAG,),
        legend="{{job}}",
    ),
    Series(
        title="Messages that are not in the store",
        expression="sum by (job) ({})",
        metrics=(names.WRITER_LAG,),
        legend="{{job}}",
    ),
    Series(
        title="From an event to its verdict",
        expression="sum by (job) (rate({}[5m])) / sum by (job) (rate({}[5m]))",
        metrics=(names.EVENT_AGE_SECONDS, names.EVENT_AGES),
        legend="{{job}}",
        unit="s",
    ),
    Series(
        title="Messages dealt with",
        expression="sum by (topic) (rate({}[5m]))",
        metrics=(names.MESSAGES,),
        legend="{{topic}}",
        unit="cps",
    ),
    Series(
        title="Set aside as dead letters",
        expression="sum by (topic, error) (rate({}[5m]))",
        metrics=(names.DEAD_LETTERED,),
        legend="{{topic}} {{error}}",
        unit="cps",
    ),
    Series(
        title="Faults of ours",
        expression="sum by (worker) (increase({}[1h]))",
        metrics=(names.WORKER_FAILURES,),
        legend="{{worker}}",
    ),
    Series(
        title="Offsets that had expired",
        expression="sum by (topic) (increase({}[1h]))",
        metrics=(names.MISSING,),
        legend="{{topic}}",
    ),
    Series(
        title="Notices",
        expression="sum by (outcome) (increase({}[1h]))",
        metrics=(names.NOTICES,),
        legend="{{outcome}}",
    ),
    Series(
        title="Time in each stage of the loops",
        expression="sum by (job, stage) (rate({}[5m]))",
        metrics=(names.STAGE_SECONDS,),
        legend="{{job}} {{stage}}",
        unit="percentunit",
    ),
)


def health() -> Dashboard:
    """The dashboard."""
    found = dashboard_of("pacehound-health", "Pacehound: the pipeline", since="now-6h", of_all=["job"])
    for one in SERIES:
        found = found.with_panel(
            timeseries.Panel()
            .title(one.title)
            .description("; ".join(metric.meaning for metric in one.metrics))
            .datasource(SOURCE)
            .unit(one.unit)
            .span(HALF)
            .height(TALL)
            .with_target(prometheus.Dataquery().expr(one.promql).legend_format(one.legend).datasource(SOURCE))
        )
    return found
