"""What a sender must show."""

from __future__ import annotations

import secrets

from pacehound.runtime.head.address import Address


def token_for(address: Address, given: str) -> str:
    """The token that somebody gave; else none on loopback, and a fresh one anywhere else.

    >>> token_for(Address("127.0.0.1", 4318), "")
    ''
    >>> len(token_for(Address("0.0.0.0", 4318), "")) >= 32
    True
    """
    if given or address.is_loopback:
        return given
    return secrets.token_urlsafe(24)
