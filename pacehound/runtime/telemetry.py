"""Counters and gauges, passed in to whoever counts, and rendered as Prometheus text.

Only what Pacehound needs: no histograms, no global registry, no background thread. The names are those of
`pacehound.runtime.metric_names`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pacehound.runtime.metric_names import METRICS, Metric

_KNOWN = frozenset(METRICS)


class Telemetry:
    """The metrics of one process; thread-safe.

    Examples
    --------
    >>> from pacehound.runtime.metric_names import TICKS
    >>> telemetry = Telemetry()
    >>> telemetry.add(TICKS)
    >>> telemetry.value(TICKS)
    1.0
    >>> "pacehound_ticks_total 1" in telemetry.render().splitlines()
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
        if metric in self._observed:
            return self._observed[metric]()
        with self._lock:
            return self._values.get(metric, {}).get(_labels(metric, metric.kind, labels), 0.0)

    def render(self) -> str:
        """All metrics as Prometheus text (exposition format 0.0.4), in the order of the table."""
        lines: list[str] = []
        with self._lock:
            values = {metric: dict(series) for metric, series in self._values.items()}
        for metric, read in self._observed.items():
            values[metric] = {(): read()}
        for metric in METRICS:
            series = values.get(metric, {} if metric.labels else {(): 0.0})
            if not series:
                continue
            lines.append(f"# HELP {metric.name} {metric.meaning}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            for key in sorted(series):
                pairs = ",".join(f'{n}="{_escaped(v)}"' for n, v in zip(metric.labels, key, strict=True))
                lines.append(f"{metric.name}{'{' + pairs + '}' if pairs else ''} {series[key]:.15g}")
        return "\n".join(lines) + "\n"


def _labels(metric: Metric, kind: str, labels: dict[str, str]) -> tuple[str, ...]:
    if metric not in _KNOWN or metric.kind != kind:
        raise ValueError(f"{metric.name} is no {kind} of pacehound.runtime.metric_names")
    if labels.keys() != set(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
    return tuple([labels[name] for name in metric.labels])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
