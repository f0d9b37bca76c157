"""Reading the Prometheus text of our own processes again."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from pacehound.errors import Unavailable

MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a metric, its labels and where it stands."""

    name: str
    labels: Mapping[str, str]
    value: float


_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def metrics_of(text: str) -> list[Sample]:
    r"""The samples of an exposition; lines of other kinds are left out.

    >>> metrics_of('# HELP a b\na{x="1\\n"} 2\nb 3\n')
    [Sample(name='a', labels={'x': '1\n'}, value=2.0), Sample(name='b', labels={}, value=3.0)]
    """
    samples = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None or line.startswith("#"):
            continue
        labels = {
            name: re.sub(r'\\[\\n"]', lambda escaped: _ESCAPED[escaped[0]], value)
            for name, value in _LABEL.findall(found[2] or "")
        }
        try:
            samples.append(Sample(found[1], labels, float(found[3])))
        except ValueError:
            continue
    return samples


def scrape(url: str, timeout_s: float = 2.0) -> list[Sample]:
    """Ask a process for its metrics.

    Parameters
    ----------
    url
        Its address; `/metrics` is added where no path is given.
    timeout_s
        How long it may take.

    Raises
    ------
    Unavailable
        It does not answer, or not with metrics.

    """
    address = metrics_url(url)
    try:
        with urllib.request.urlopen(address, timeout=timeout_s) as answer:
            text = answer.read(MAX_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise Unavailable(f"{address} does not answer: {reason}") from error
    return metrics_of(text)


def metrics_url(target: str) -> str:
    """The whole URL of a target.

    >>> metrics_url("http://writer:9464"), metrics_url("writer:9464"), metrics_url("http://x/prom")
    ('http://writer:9464/metrics', 'http://writer:9464/metrics', 'http://x/prom')
    """
    url = target if target.startswith(("http://", "https://")) else f"http://{target}"
    _, _, rest = url.partition("://")
    return url if "/" in rest.rstrip("/") else url.rstrip("/") + "/metrics"
