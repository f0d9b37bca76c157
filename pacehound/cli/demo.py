"""`pacehound demo`: a simulated job, watched."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from pacehound.cli.options import json_option, log_to_stderr, page_option, set_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings


@click.command()
@click.option("--iterations", type=click.IntRange(120), default=300, show_default=True, help="Steps of the job.")
@click.option("--store", type=click.Path(path_type=Path, file_okay=False), help="Keep the history here, too.")
@click.option("--serve", is_flag=True, help="Serve the page instead, over simulated jobs that come and go.")
@page_option
@set_option
@json_option
def demo(
    iterations: int, store: Path | None, serve: bool, page: str | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Simulate a training job in which one rank becomes slow, and watch it: no GPU, no torch, no Kafka.

    What was found is held against what the simulator did. Exit status 0 when it agrees, else 1.
    """
    from pacehound.cli.demo_run import run_demo, write_demo
    from pacehound.runtime.embedded import open_parts
    from pacehound.runtime.telemetry import Telemetry
    from simulator.faults import SlowCompute
    from simulator.job import JobSpec, simulate

    slow = SlowCompute(ranks=(2,), factor=1.5, from_step=iterations // 3, to_step=iterations * 2 // 3)
    spec = JobSpec(job="demo", iterations=iterations, faults=(slow,))
    settings = Settings.load(os.environ, overrides)
    if page is not None and not serve:
        raise InvalidInput(f"--page {page} is for the page of --serve")
    with tempfile.TemporaryDirectory(prefix="pacehound-demo-") as scratch:
        folder = store.absolute() if store else Path(scratch)
        if serve:
            from pacehound.cli.demo_serve import serve_demo
            from pacehound.cli.page_address import page_at

            log_to_stderr()
            serve_demo(settings, folder, page_at(page, settings, folder))
            return
        result = run_demo(
            lambda: simulate(spec),
            lambda: open_parts(settings, folder, Telemetry()),
            settings,
        )
    write_demo(result, sys.stdout, as_json=as_json)
    sys.exit(0 if result.agrees else 1)
