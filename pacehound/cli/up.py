"""`pacehound up`: a head node that other hosts send to."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import log_to_stderr, page_option, say, set_option, store_option
from pacehound.errors import StoreOwned
from pacehound.settings import Settings

if TYPE_CHECKING:
    from pacehound.runtime.head.certificate import Certificate


@click.command()
@click.option("--listen", metavar="ADDRESS", default="127.0.0.1:4318", show_default=True, help="HOST:PORT for OTLP.")
@click.option(
    "--tls/--no-tls",
    "tls",
    default=None,
    help="Speak TLS, or plain HTTP.  [default: TLS where other machines can reach ADDRESS, or a certificate is given]",
)
@click.option("--record", type=click.Path(path_type=Path), help="Write every message to this new file, for `replay`.")
@page_option
@click.option("--until-released", is_flag=True, hidden=True)
@click.option("--handover-fd", type=int, hidden=True)
@store_option
@set_option
def up(
    listen: str,
    tls: bool | None,
    record: Path | None,
    page: str | None,
    until_released: bool,
    handover_fd: int | None,
    store: Path,
    overrides: tuple[str, ...],
) -> None:
    """Run a head node: take OTLP over HTTP from other hosts, watch their jobs, keep the history.

    Senders must show a token: that of PACEHOUND_TOKEN, or one that is made up and printed. A run of this
    user on this machine with the same --store finds it by itself, and needs none: it sends over a Unix socket.

    With TLS the head shows the certificate of --set tls.certificate_file=FILE (and tls.key_file), which senders check
    against the CAs they trust; or one of its own, kept beside the store, which the printed token names.
    """
    from pacehound.bus.otlp_headers import TOKEN_VARIABLE, token_and_pin
    from pacehound.bus.recording import RecordingWriter
    from pacehound.cli.page_address import page_at
    from pacehound.launcher.handover import take_over
    from pacehound.runtime.embedded import run_head
    from pacehound.runtime.head.address import parse_address
    from pacehound.runtime.head.certificate import certificate_for, refuse_other
    from pacehound.runtime.head.serve import Listeners
    from pacehound.runtime.head.token import token_for

    log_to_stderr()
    handed = take_over(handover_fd)
    settings = Settings.load(os.environ, (*handed.overrides, *overrides))
    given, pin = token_and_pin(os.environ.get(TOKEN_VARIABLE, ""))
    token = token_for(given)
    address = certificate = None
    if not until_released:  # a run's own head answers this user's agents alone, over its socket
        address = parse_address(listen)
        certificate = certificate_for(settings.tls, store, asked=tls, is_reachable=not address.is_loopback)
        refuse_other(pin, certificate)
    listeners = Listeners(address=address, token=token, certificate=certificate, until_released=until_released)
    try:
        run_head(
            settings=settings,
            folder=store,
            listeners=listeners,
            page=page_at(page, settings, store),
            recording=RecordingWriter(record) if record else None,
            on_ready=lambda owner: (
                None if until_released else say(ready_words(owner.url, owner.page, token, given, certificate), err=True)
            ),
        )
    except StoreOwned as error:
        say(f"pacehound: {error}", err=True)
        sys.exit(3 if until_released else 1)


def ready_words(url: str, page: str, token: str, given: str, certificate: Certificate | None) -> str:
    """What to type on the other hosts; a token that somebody gave is not repeated."""
    from pacehound.bus.otlp_headers import with_pin

    pin = certificate.pin if certificate is not None and certificate.is_own else ""
    url = url.replace("//0.0.0.0:", f"//{socket.gethostname()}:").replace("//[::]:", f"//{socket.gethostname()}:")
    line = f"PACEHOUND_TOKEN={with_pin('…' if given else token, pin)} pacehound run --endpoint {url} -- COMMAND…"
    return f"pacehound: ready. Its page: {page}\nOn each training host:\n  {line}"
