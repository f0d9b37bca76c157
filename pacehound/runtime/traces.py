"""Our own OpenTelemetry traces: one per batch of a process, with a span for each stage of its loop.

Nothing of OpenTelemetry is loaded, and nothing is done, unless `telemetry.traces_endpoint` is set. That is not
OTEL_EXPORTER_OTLP_ENDPOINT: there it stands for where agents send what they see.
"""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pacehound.errors import InvalidSetting

logger = logging.getLogger(__name__)

PATH = "/v1/traces"
MAX_WAITING_SPANS = 2048
"""Beyond it spans are dropped: traces never hold a process up."""


class Traces:
    """Where finished batches are told; here nobody listens."""

    is_on = False

    def batch(self, begin_ns: int, end_ns: int, messages: int, stages: list[tuple[str, int, int]]) -> None:
        """A batch has been done: when, how many messages, and each stage with its begin and end (Unix time)."""

    def close(self) -> None:
        """Send what waits."""


class OtlpTraces(Traces):
    """Sends spans over OTLP/HTTP, in batches and from a thread of its own.

    Parameters
    ----------
    process
        Its name, as in `service.name`.
    url
        Where they are posted.

    """

    is_on = True

    def __init__(self, process: str, url: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from pacehound.runtime.span_exporter import SpanPost

        resource = Resource.create({"service.name": f"pacehound-{process}", "service.version": own_version()})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(SpanPost(url), max_queue_size=MAX_WAITING_SPANS))
        self._tracer = self._provider.get_tracer("pacehound.engine")

    def batch(self, begin_ns: int, end_ns: int, messages: int, stages: list[tuple[str, int, int]]) -> None:
        """One root span with its stages below it."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        root = self._tracer.start_span(
            "batch", context=Context(), start_time=begin_ns, attributes={"pacehound.messages": messages}
        )
        below: Any = trace.set_span_in_context(root, Context())
        for name, stage_begin_ns, stage_end_ns in stages:
            self._tracer.start_span(name, context=below, start_time=stage_begin_ns).end(stage_end_ns)
        root.end(end_ns)

    def close(self) -> None:
        """Send what waits, within a few seconds."""
        self._provider.shutdown()


def make_traces(process: str, endpoint: str) -> Traces:
    """Traces of a process as `telemetry.traces_endpoint` says.

    Raises
    ------
    InvalidSetting
        The endpoint is no URL, or the packages for it are missing.

    """
    if not endpoint:
        return Traces()
    url = traces_url("telemetry.traces_endpoint", endpoint)
    try:
        return OtlpTraces(process, url)
    except ImportError as error:
        raise InvalidSetting(
            f"telemetry.traces_endpoint is set and {error.name} is not installed; install pacehound[engine]"
        ) from error


def traces_url(setting: str, endpoint: str) -> str:
    """Where spans are posted, from a base URL or from the whole one.

    >>> traces_url("traces.endpoint", "http://HOST:4318"), traces_url("traces.endpoint", "http://HOST:4318/v1/traces")
    ('http://HOST:4318/v1/traces', 'http://HOST:4318/v1/traces')

    Raises
    ------
    InvalidSetting
        The setting holds no URL.

    """
    if not endpoint.startswith(("http://", "https://")):
        raise InvalidSetting(f"{setting}={endpoint!r} is no URL; write one as in http://HOST:4318, OTLP over HTTP")
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def own_version() -> str:
    """The version of this package; `0` in a source tree that is not installed."""
    try:
        return version("pacehound")
    except PackageNotFoundError:
        return "0"
