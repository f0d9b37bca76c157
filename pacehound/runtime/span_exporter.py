"""Posts finished spans to an OTLP/HTTP receiver.

OpenTelemetry's own exporter (opentelemetry-exporter-otlp-proto-http) adds the headers of OTEL_EXPORTER_OTLP_HEADERS to
whatever it sends, and has no way to add none. With us these hold the token of the receiver that agents send to, which
whoever takes our traces shall not be shown. It also tries a batch up to six times. This one adds no header and tries
once; for a receiver that wants headers, put an OpenTelemetry Collector in between.
"""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0


class SpanPost(SpanExporter):
    """One POST per batch of spans; what is not taken is dropped, and the first time said.

    Parameters
    ----------
    url
        The whole URL, as in `http://collector:4318/v1/traces`.

    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_taken = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them, once."""
        request = urllib.request.Request(
            self._url,
            data=encode_spans(spans).SerializeToString(),
            headers={"Content-Type": "application/x-protobuf", "User-Agent": "pacehound"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                self._is_taken = True
                return SpanExportResult.SUCCESS
        except OSError as error:
            if self._is_taken:
                logger.warning("our traces are not taken and will be missing: %s", error)
            self._is_taken = False
            return SpanExportResult.FAILURE
