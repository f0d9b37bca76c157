"""`pacehound replay`: the pipeline over a recording."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, say, set_option
from pacehound.settings import Settings


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@set_option
@json_option
def replay(file: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Run the pipeline over a recording (`pacehound up --record FILE`) and show the incidents.

    With --json every event that the pipeline concludes is printed, in log order; the same recording gives the same
    answer, byte for byte.
    """
    from pacehound.bus.recording import Recording
    from pacehound.cli.progress import Progress
    from pacehound.cli.replay_run import print_replay, replayed, summed, write_events
    from pacehound.pages.terminal import terminal
    from streams.pipeline import Pipeline

    pipeline = Pipeline(Settings.load(os.environ, overrides))
    recording = Recording(file)
    with Progress() as progress:
        size = file.stat().st_size
        events = replayed(
            progress.over(recording, f"replaying {file.name}", size, lambda one: len(one.value)), pipeline
        )
        if as_json:
            write_events(events, sys.stdout)
        else:
            found = summed(events)
    if not as_json:
        print_replay(found, terminal(sys.stdout))
    if recording.torn_bytes:
        say(f"pacehound: the last {recording.torn_bytes} bytes of {file} are no whole message", err=True)
