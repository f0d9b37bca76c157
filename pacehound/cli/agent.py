"""`pacehound agent`: the agent of this host, started by `pacehound run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import log_to_stderr, set_option
from pacehound.settings import Settings


@click.command(hidden=True)
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="The run's folder.")
@click.option("--endpoint", metavar="URL", required=True, help="Where to send: http(s)://… or kafka://HOST:PORT.")
@click.option("--lifeline-fd", type=int, help="A pipe that closes when `pacehound run` is gone.")
@set_option
def agent(run_dir: Path, endpoint: str, lifeline_fd: int | None, overrides: tuple[str, ...]) -> None:
    """Send what the ranks of this host write into their rings (started by `pacehound run`).

    Headers for the receiver are taken from OTEL_EXPORTER_OTLP_HEADERS.
    """
    from collector.agent.daemon import run as run_agent
    from pacehound.bus.otlp_headers import HEADERS_VARIABLE, parse_headers
    from pacehound.launcher.lifeline import hold

    log_to_stderr()
    if lifeline_fd is not None:
        hold(lifeline_fd, run_dir)
    headers = parse_headers(os.environ.get(HEADERS_VARIABLE, ""))
    sys.exit(run_agent(run_dir, endpoint, headers, Settings.load(os.environ, overrides)))
