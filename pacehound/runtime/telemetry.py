"""Counters and gauges, passed in to whoever counts; prometheus-client gives them out.

Only what Pacehound needs: no histograms, no global registry, no background thread. The names are those of
`pacehound.runtime.metric_names`. The values are kept here and not in the library's own counters: those write to the
folder of PROMETHEUS_MULTIPROC_DIR where the training sets it, which is none of ours. The library is loaded when
somebody looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pacehound.runtime.metric_names import METRICS, Metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric as MetricFamily

_KNOWN = frozenset(METRICS)


class Telemetry:
    """The metrics of one process, a collector for prometheus-client; thread-safe.

    Examples
    --------
    >>> from pacehound.runtime.metric_names import TICKS
    >>> telemetry = Telemetry()
    >>> telemetry.add(TICKS)
    >>> telemetry.value(TICKS)
    1.0
    >>> "pacehound_ticks_total 1.0" in telemetry.render().splitlines()
    True

    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._observed: dict[Metric, Callable[[], float]] = {}

    def add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Count `amount` more.

        Raises
        ------
        ValueError
            The metric is no counter of the table, the labels are not its own, or `amount` is negative.

        """
        if amount < 0:
            raise ValueError(f"{metric.name} is a counter and cannot fall by {-amount}")
        key = _labels(metric, "counter", labels)
        with self._lock:
            series = self._values.setdefault(metric, {})
            series[key] = series.get(key, 0.0) + amount

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """A gauge stands at `value` now."""
        key = _labels(metric, "gauge", labels)
        with self._lock:
            self._values.setdefault(metric, {})[key] = value

    def observe(self, metric: Metric, read: Callable[[], float]) -> None:
        """A gauge that is read when somebody looks."""
        _labels(metric, "gauge", {})
        self._observed[metric] = read

    def value(self, metric: Metric, **labels: str) -> float:
        """What a metric stands at; 0 before its first use."""
        key = _labels(metric, metric.kind, labels)
        return self._series(metric).get(key, 0.0)

    def collect(self) -> Iterable[MetricFamily]:
        """All metrics in the order of the table; those without labels are there from the start, at 0."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for metric in METRICS:
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            found = family(metric.name, metric.meaning, labels=metric.labels)
            for key, value in sorted(self._series(metric).items()):
                found.add_metric(key, value)
            yield found

    def render(self) -> str:
        """All metrics as Prometheus text."""
        from prometheus_client import generate_latest

        return generate_latest(self).decode()

    def _series(self, metric: Metric) -> dict[tuple[str, ...], float]:
        if metric in self._observed:
            return {(): self._observed[metric]()}
        with self._lock:
            return self._values.get(metric, {} if metric.labels else {(): 0.0}).copy()


def _labels(metric: Metric, kind: str, labels: dict[str, str]) -> tuple[str, ...]:
    if metric not in _KNOWN or metric.kind != kind:
        raise ValueError(f"{metric.name} is no {kind} of pacehound.runtime.metric_names")
    if len(labels) != len(metric.labels) or not all(name in labels for name in metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
    return tuple([labels[name] for name in metric.labels])
