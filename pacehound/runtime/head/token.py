"""What a sender must show."""

from __future__ import annotations

import secrets


def token_for(given: str) -> str:
    """The token that somebody gave, else a fresh one: on loopback too, where every user of the machine could send.

    >>> token_for("given"), len(token_for("")) >= 32
    ('given', True)
    """
    return given or secrets.token_urlsafe(24)
