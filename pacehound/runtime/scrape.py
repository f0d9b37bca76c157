"""Reading the Prometheus text of our own processes again."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pacehound.bus.otlp_headers import bearer
from pacehound.errors import Unavailable

MAX_BYTES = 4 * 1024 * 1024


def metrics_of(text: str) -> list[Sample]:
    r"""The samples of an exposition.

    >>> [(one.name, one.labels, one.value) for one in metrics_of('# HELP a b\na{x="1\\n"} 2\nb 3\n')]
    [('a', {'x': '1\n'}, 2), ('b', {}, 3)]

    Raises
    ------
    ValueError
        It is none.

    """
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def scrape(url: str, timeout_s: float = 2.0, token: str = "") -> list[Sample]:
    """Ask a process for its metrics.

    Parameters
    ----------
    url
        Its address; `/metrics` is added where no path is given.
    timeout_s
        How long it may take.
    token
        Shown to whoever asks for one, as a head does.

    Raises
    ------
    Unavailable
        It does not answer, or not with metrics.

    """
    address = metrics_url(url)
    try:
        with read(address, timeout_s, token) as answer:
            text = answer.read(MAX_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError) and error.code == http.HTTPStatus.UNAUTHORIZED:
            reason = "it asks for another token (PACEHOUND_TOKEN)" if token else "it asks for a token (PACEHOUND_TOKEN)"
        raise Unavailable(f"{address} does not answer: {reason}") from error
    try:
        return metrics_of(text)
    except ValueError as error:
        raise Unavailable(f"{address} answers, but not with metrics: {error}") from error


class _StayHere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """A token is not carried to another place."""


def read(address: str, timeout_s: float, token: str) -> http.client.HTTPResponse:
    """The answer at an address; errors as those of `urllib.request`."""
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(address, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.UNAUTHORIZED or not token:
            raise
        error.close()
        shown = urllib.request.Request(address, headers=bearer(token))
        answer = urllib.request.build_opener(_StayHere).open(shown, timeout=timeout_s)
    return answer


def metrics_url(target: str) -> str:
    """The whole URL of a target.

    >>> metrics_url("http://writer:9464"), metrics_url("writer:9464"), metrics_url("http://x/prom")
    ('http://writer:9464/metrics', 'http://writer:9464/metrics', 'http://x/prom')
    """
    url = target if target.startswith(("http://", "https://")) else f"http://{target}"
    _, _, rest = url.partition("://")
    return url if "/" in rest.rstrip("/") else url.rstrip("/") + "/metrics"
