"""What a sender must show."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from pacehound.head.address import Address
from pacehound.launcher.destination import TOKEN_VARIABLE


def token_for(address: Address, environ: Mapping[str, str]) -> str:
    """The token of the environment; else none on loopback, and a fresh one anywhere else.

    >>> token_for(Address("127.0.0.1", 4318), {})
    ''
    >>> len(token_for(Address("0.0.0.0", 4318), {})) >= 32
    True
    """
    given = environ.get(TOKEN_VARIABLE, "")
    if given or address.is_loopback:
        return given
    return secrets.token_urlsafe(24)
