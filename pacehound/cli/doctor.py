"""`pacehound doctor`: what works on this host."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, print_json, say, set_option, store_option
from pacehound.errors import Unavailable
from pacehound.settings import Settings


@click.command()
@click.option(
    "--build",
    is_flag=True,
    help="Compile the detectors, the NCCL shim and, for the torch installed here, the C++ hooks.",
)
@store_option
@set_option
@json_option
def doctor(build: bool, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say what works on this host, what does not, and how to fix it."""
    import msgspec

    from pacehound.cli.doctor_checks import build_fast_path, build_loops, build_shim, examine, print_checks
    from pacehound.cli.progress import Progress
    from pacehound.pages.terminal import terminal

    settings = Settings.load(os.environ, overrides)
    failed = False
    if build:
        for part in (build_loops, build_shim, build_fast_path):
            try:
                part(terminal(sys.stderr))
            except Unavailable as error:
                say(f"pacehound: {error}", err=True)
                failed = True
    with Progress() as progress:
        checks = examine(store, settings, lambda name: progress.stage(f"looking at: {name}"))
    if as_json:
        print_json(
            {"schema": 1, "checks": [{"name": name, **msgspec.to_builtins(one)} for name, one in checks.items()]}
        )
    else:
        print_checks(terminal(sys.stdout), checks)
    sys.exit(1 if failed else 0)
