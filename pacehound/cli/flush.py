"""`pacehound flush`: send what earlier runs could not."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from pacehound.cli.options import log_to_stderr, say, set_option, store_option
from pacehound.settings import Settings

_PATIENCE_S = 15.0
"""A receiver that is there takes something in less."""


@click.command()
@click.option("--endpoint", metavar="URL", help="What was meant for this OTLP/HTTP receiver or Kafka.")
@store_option
@set_option
def flush(endpoint: str | None, store: Path, overrides: tuple[str, ...]) -> None:
    """Send what earlier runs on this machine could not send, because their receiver was away.

    With --endpoint (or OTEL_EXPORTER_OTLP_ENDPOINT) what was meant for it goes there, with the token of
    PACEHOUND_TOKEN; else what was meant for the store goes to the head that has it open (pacehound up). The next
    pacehound run to the same place does this by itself.
    """
    from collector.agent.daemon import open_sender
    from collector.agent.successor import flush as send
    from pacehound.errors import Unavailable
    from pacehound.launcher.destination import Destination, chosen_destination
    from pacehound.runtime.head.client import live_owner
    from pacehound.runtime.unsent import flush_command, forget_old, left_behind, store_name, store_of, unsent_folders

    log_to_stderr()
    settings = Settings.load(os.environ, overrides)
    destination = chosen_destination(endpoint, os.environ) or Destination(url=store_name(store))
    goes_to = destination.url
    has_failed = False
    found = False
    for parent in unsent_folders(os.environ):
        for dropped in forget_old(parent, time.time_ns()):
            say(dropped)
        for folder in left_behind(parent):
            found = True
            if folder.left.goes_to != goes_to:
                waits = f"job {folder.left.job}: {folder.held_bytes():,} bytes wait for {folder.left.goes_to}"
                say(f"{waits}; to send them: {flush_command(folder.left.goes_to)}")
                folder.release()
                continue
            if store_of(goes_to) is not None and live_owner(store) is None:
                raise Unavailable(f"nobody has the store {store} open: start pacehound up --store {store} first")
            sender = open_sender(goes_to, destination.headers, destination.trust, settings)
            flushed = send(folder, sender, patience_s=_PATIENCE_S)
            has_failed |= flushed.unsent > 0
            sent = flushed.messages - flushed.unsent - flushed.refused
            words = (
                f"job {flushed.left.job}: {sent:,} of {flushed.messages:,} messages sent to {goes_to}, "
                f"{flushed.unsent:,} wait, {flushed.refused:,} refused. {flushed.reason}"
            )
            say(words.rstrip())
    if not found:
        say("nothing waits to be sent")
    sys.exit(int(has_failed))
