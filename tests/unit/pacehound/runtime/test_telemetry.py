"""Every metric is in the table, and nothing else can be counted."""

import pytest

from pacehound.runtime.metric_names import BUS_BYTES, METRICS, OTLP_REQUESTS, RECORDS_REJECTED, TICKS, Metric
from pacehound.runtime.telemetry import Telemetry


def test_names_follow_prometheus():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("pacehound_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.meaning


def test_rendering_is_prometheus_text():
    telemetry = Telemetry()
    telemetry.add(OTLP_REQUESTS, path="/v1/logs", status="200")
    telemetry.add(OTLP_REQUESTS, path="/v1/logs", status="200")
    telemetry.add(RECORDS_REJECTED, error='a "b"\n\\')
    telemetry.observe(BUS_BYTES, lambda: 7.0)
    lines = telemetry.render().splitlines()
    assert 'pacehound_otlp_requests_total{path="/v1/logs",status="200"} 2.0' in lines
    assert 'pacehound_records_rejected_total{error="a \\"b\\"\\n\\\\"} 1.0' in lines
    assert "pacehound_bus_held_bytes 7.0" in lines
    assert "# TYPE pacehound_bus_held_bytes gauge" in lines
    assert "pacehound_ticks_total 0.0" in lines


def test_misuse_is_refused():
    telemetry = Telemetry()
    with pytest.raises(ValueError, match="cannot fall"):
        telemetry.add(TICKS, -1)
    with pytest.raises(ValueError, match="is no counter"):
        telemetry.add(BUS_BYTES)
    with pytest.raises(ValueError, match="labels"):
        telemetry.add(OTLP_REQUESTS, path="/")
    with pytest.raises(ValueError, match=r"metric_names"):
        telemetry.add(Metric("x_total", "counter", "mine"))
