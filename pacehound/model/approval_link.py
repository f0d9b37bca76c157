"""The link by which somebody who is told of a decision may say yes or no to it.

Its token is bound to the decision and to the moment until which that waits: HMAC-SHA256 of both, so that nothing has to
be remembered of links that were sent. It works once because a decision is answered once.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlencode

LEAST_KEY = 16
"""Characters: 16 random ones are not guessed."""


def token_of(key: str, decision: str, until_s: int) -> str:
    """What proves that a link was made by somebody who has the key.

    >>> token_of("k" * 16, "d" * 32, 5) == token_of("k" * 16, "d" * 32, 6)
    False
    """
    return hmac.new(key.encode(), f"approve {decision} {until_s}".encode(), hashlib.sha256).hexdigest()


def link_of(page_url: str, key: str, decision: str, until_s: int) -> str:
    """Where the decision is shown, and answered; empty where there is no page, or no key that is good enough."""
    if not page_url or len(key) < LEAST_KEY:
        return ""
    words = urlencode({"until": until_s, "token": token_of(key, decision, until_s)})
    return f"{page_url.rstrip('/')}/approve/{decision}?{words}"


def why_not(key: str, decision: str, until_s: int, token: str, now_s: float) -> str:
    """Why a link is none, or is none any more; empty where it holds. Tokens are compared in constant time.

    >>> token = token_of("k" * 16, "d" * 32, 5)
    >>> why_not("k" * 16, "d" * 32, 5, token, 4.0), why_not("k" * 16, "d" * 32, 5, token, 6.0)
    ('', 'this link has expired')
    """
    good = token_of(key, decision, until_s)
    if len(key) < LEAST_KEY or not hmac.compare_digest(token.encode(errors="replace"), good.encode()):
        return "this is no link of ours to this decision"
    return "" if now_s < until_s else "this link has expired"
