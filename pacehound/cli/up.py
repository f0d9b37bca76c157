"""`pacehound up`: a head node that other hosts send to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import log_to_stderr, set_option, store_option
from pacehound.errors import StoreOwned
from pacehound.settings import Settings


@click.command()
@click.option("--listen", metavar="ADDRESS", default="127.0.0.1:4318", show_default=True, help="HOST:PORT for OTLP.")
@click.option("--record", type=click.Path(path_type=Path), help="Write every message to this new file, for `replay`.")
@click.option("--listener-fd", type=int, hidden=True)
@click.option("--until-released", is_flag=True, hidden=True)
@click.option("--handover-fd", type=int, hidden=True)
@store_option
@set_option
def up(
    listen: str,
    record: Path | None,
    listener_fd: int | None,
    until_released: bool,
    handover_fd: int | None,
    store: Path,
    overrides: tuple[str, ...],
) -> None:
    """Run a head node: take OTLP over HTTP from other hosts, watch their jobs, keep the history.

    Senders must show a token: that of PACEHOUND_TOKEN, or one that is made up and printed. A run of this
    user with the same --store finds it by itself.
    """
    from pacehound.bus.otlp_headers import TOKEN_VARIABLE
    from pacehound.bus.recording import RecordingWriter
    from pacehound.launcher.handover import take_over
    from pacehound.runtime.embedded import listener_of, run_head
    from pacehound.runtime.head.address import parse_address
    from pacehound.runtime.head.serve import Listeners
    from pacehound.runtime.head.token import token_for

    log_to_stderr()
    address = parse_address(listen)
    handed = take_over(handover_fd)
    given = handed.token or os.environ.get(TOKEN_VARIABLE, "")
    token = token_for(given)
    listeners = Listeners(
        address=address, listener=listener_of(listener_fd), token=token, until_released=until_released
    )
    try:
        run_head(
            settings=Settings.load(os.environ, (*handed.overrides, *overrides)),
            folder=store,
            listeners=listeners,
            recording=RecordingWriter(record) if record else None,
            on_ready=lambda owner: (
                None if until_released else click.echo(ready_words(owner.url, token, given), err=True)
            ),
        )
    except StoreOwned as error:
        click.echo(f"pacehound: {error}", err=True)
        sys.exit(3 if until_released else 1)


def ready_words(url: str, token: str, given: str) -> str:
    """What to type on the other hosts; a token that somebody gave is not repeated."""
    secret = "PACEHOUND_TOKEN=… " if given else f"PACEHOUND_TOKEN={token} "
    return f"pacehound: ready. On each training host:\n  {secret}pacehound run --endpoint {url} -- COMMAND…"
