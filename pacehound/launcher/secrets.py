"""What a command that is watched does not inherit: tokens and passwords that were meant for us."""

from __future__ import annotations

from collections.abc import Mapping

from pacehound.bus.otlp_headers import TOKEN_VARIABLE
from pacehound.settings import secret_variables


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` less our own secrets: every process of the job would have them, and whoever can look into one.

    OpenTelemetry's variables stay. They are the job's own, too, where it has an exporter.

    >>> without_secrets({"PACEHOUND_TOKEN": "s3cret", "PATH": "/bin", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"})
    {'PATH': '/bin', 'OTEL_EXPORTER_OTLP_HEADERS': 'a=b'}
    """
    secret = {TOKEN_VARIABLE, *secret_variables()}
    return {name: value for name, value in environ.items() if name not in secret}
