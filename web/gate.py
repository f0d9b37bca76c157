"""Who may read the page: whoever shows its token once, from a page of its own.

The token travels in the fragment of the printed address, which browsers send to nobody; the page hands it over once and
gets a cookie that scripts cannot read. A browser that comes with another name for this machine (DNS rebinding), from
another origin, or with a method that changes things is refused, whatever it shows.

Whoever reads does not answer: a second token opens the page for those who may say yes or no to what waits. Nothing else
is taken from a browser, and that only where it says that the page itself has asked it to.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

TOKEN_FILE = "page.token"
ANSWERING_FILE = "answering.token"
SESSION_S = 30 * 86_400
"""A browser that has shown the token is known for a month."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""With every answer."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is not answered: the status, and why."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides on each request.

    Parameters
    ----------
    token
        What whoever reads must have shown.
    port
        Of the page: cookies of one machine are shared between its ports.
    names
        Names besides addresses by which this machine may be called.
    answering
        What whoever may answer, too, must have shown instead; empty: nobody may.

    >>> gate = Gate("t", 4319, frozenset({"localhost"}))
    >>> gate.refusal("GET", "evil.example:4319", {}, {})
    Refused(status=421, reason='this page does not answer as evil.example:4319')
    >>> gate.refusal("GET", "localhost:4319", {}, {})
    Refused(status=401, reason='the token of the page has not been shown')
    >>> gate.refusal("GET", "localhost:4319", {}, {gate.cookie: gate.session()}) is None
    True
    """

    token: str
    port: int
    names: frozenset[str]
    answering: str = ""

    @property
    def cookie(self) -> str:
        """Its name."""
        return f"pacehound_{self.port}"

    def session(self, authorization: str = "") -> str:
        """What the cookie holds after this was shown: it tells nobody the token."""
        return _session(self.answering if self.may_answer(authorization) else self.token)

    def refusal(
        self,
        method: str,
        host: str,
        headers: Mapping[str, str],
        cookies: Mapping[str, str],
        *,
        is_open: bool = False,
        is_answer: bool = False,
    ) -> Refused | None:
        """Why a request is not answered, if it is not.

        `is_open`: what it asks for is for everybody; `is_answer`: it says yes or no to what waits.
        """
        if not self._is_called(host):
            return Refused(421, f"this page does not answer as {host[:80]}")
        origin = headers.get("Origin", "")
        if (origin and urlsplit(origin).netloc != host) or headers.get("Sec-Fetch-Site", "none") not in (
            "none",
            "same-origin",
        ):
            # A link from another page may open the page itself; its data is for the page alone.
            is_link = headers.get("Sec-Fetch-Mode") == "navigate" and is_open
            if not is_link:
                return Refused(403, "asked from another origin")
        if method not in ("GET", "HEAD") and not (method == "POST" and (is_open or is_answer)):
            return Refused(405, "the page only reads")
        authorization, cookie = headers.get("Authorization", ""), cookies.get(self.cookie, "")
        if is_answer and self.knows(authorization, cookie):
            if not self.may_answer(authorization, cookie):
                return Refused(403, "this browser may read, and not answer: `pacehound approve` says who may")
            # Every browser says where a POST comes from; a program shows the token itself.
            return None if origin or self.may_answer(authorization) else Refused(403, "asked from nowhere")
        if is_open or self.knows(authorization, cookie):
            return None
        return Refused(401, "the token of the page has not been shown")

    def knows(self, authorization: str, cookie: str = "") -> bool:
        """Whether a token, or a session that it began, was shown."""
        return _is_shown(self.token, authorization, cookie) or self.may_answer(authorization, cookie)

    def may_answer(self, authorization: str, cookie: str = "") -> bool:
        """Whether that was the one of those who may answer."""
        return bool(self.answering) and _is_shown(self.answering, authorization, cookie)

    def _is_called(self, host: str) -> bool:
        """By its address, or by a name that it is known to have."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True


def _session(token: str) -> str:
    return hmac.new(token.encode(), b"pacehound page session", hashlib.sha256).hexdigest()


def _is_shown(token: str, authorization: str, cookie: str) -> bool:
    shown = authorization.removeprefix("Bearer ").encode(errors="replace")
    return hmac.compare_digest(shown, token.encode()) or hmac.compare_digest(
        cookie.encode(errors="replace"), _session(token).encode()
    )


def page_token(folder: Path, name: str = TOKEN_FILE) -> str:
    """The token of the page over this folder: made at first, and kept for its user alone, so that links stay good."""
    path = folder / name
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass
    token = secrets.token_urlsafe(24)
    made = path.with_name(f"{name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(token + "\n")
    try:
        os.link(made, path)  # whoever came first has decided
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    finally:
        made.unlink()
    return token
