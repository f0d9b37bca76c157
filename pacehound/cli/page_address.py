"""Where `up`, `web` and `demo --serve` serve the page."""

from __future__ import annotations

from pathlib import Path

from pacehound.cli.options import DEFAULT_PAGE
from pacehound.runtime.embedded import Page
from pacehound.runtime.head.address import PAGE_PORT, parse_address
from pacehound.runtime.head.certificate import certificate_for
from pacehound.settings import Settings


def page_at(asked: str | None, settings: Settings, folder: Path) -> Page:
    """The address that `--page` asks for, else the usual one; with TLS where other machines reach it."""
    address = parse_address(asked or DEFAULT_PAGE, option="--page", port=PAGE_PORT)
    certificate = None
    if not address.is_loopback:
        certificate = certificate_for(settings.tls, folder, asked=None, is_reachable=True)
    return Page(address=address, certificate=certificate, takes_any_port=asked is None)
