"""How long each stage of a loop takes: counted for Prometheus, and as spans where somebody listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pacehound.clock import Clock
from pacehound.runtime.metric_names import LAST_BATCH, STAGE_RUNS, STAGE_SECONDS
from pacehound.runtime.telemetry import Telemetry
from pacehound.runtime.traces import Traces


class Stages:
    """The stages of one loop; for the one thread that runs it.

    A mean latency is `rate(pacehound_stage_seconds_total) / rate(pacehound_stage_runs_total)`: two counters, which
    can be added over processes, and no buckets to choose.

    Examples
    --------
    >>> from pacehound.clock import ManualClock
    >>> telemetry, clock = Telemetry(), ManualClock()
    >>> stages = Stages(telemetry, clock)
    >>> with stages.stage("insert"):
    ...     clock.advance_s(0.5)
    >>> stages.end_batch(100)
    >>> telemetry.value(STAGE_SECONDS, stage="insert"), telemetry.value(STAGE_RUNS, stage="insert")
    (0.5, 1.0)

    """

    def __init__(self, telemetry: Telemetry, clock: Clock, traces: Traces | None = None) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._traces = traces or Traces()
        self._spans: list[tuple[str, int, int]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is done in the block, also when it fails."""
        begin_ns, begin_s = self._clock.now_ns(), self._clock.monotonic_s()
        try:
            yield
        finally:
            took_s = max(self._clock.monotonic_s() - begin_s, 0.0)
            self._telemetry.add(STAGE_SECONDS, took_s, stage=name)
            self._telemetry.add(STAGE_RUNS, stage=name)
            if self._traces.is_on:
                self._spans.append((name, begin_ns, begin_ns + round(took_s * 1e9)))

    def end_batch(self, messages: int) -> None:
        """So many messages have been done by the stages since the last call; none: that was idling, and no trace."""
        now_ns = self._clock.now_ns()
        if messages:
            self._telemetry.set(LAST_BATCH, now_ns / 1e9)
            if self._spans:
                self._traces.batch(self._spans[0][1], now_ns, messages, self._spans)
        self._spans = []
