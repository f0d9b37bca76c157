"""E-mail: a message when an alert opens and one when it is over, in one thread.

`smtps://` speaks TLS from the first byte, `smtp://` begins it with STARTTLS and sends nothing without: but for a
server on this machine, which may have no TLS. The password is a setting of its own, and goes over TLS alone.

The message id is the same for every attempt, so that a reader which drops repeats shows one.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, parseaddr
from urllib.parse import unquote, urlsplit

from alerts.notice import Delivery, Notice
from alerts.receiver import ANSWER_TIMEOUT_S
from alerts.severity import Level
from pacehound.errors import InvalidSetting
from pacehound.model.plain import plain

LONGEST_SUBJECT = 200
_EXAMPLE = "smtp://user@mail.example:587 or smtps://user@mail.example"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Email:
    """Readers of e-mail behind a server.

    Parameters
    ----------
    url
        The server: `smtp://` or `smtps://`, with the user's name where it asks for one.
    password
        Of that user.
    sender, readers
        Addresses; the readers' separated by commas.
    context
        How TLS is checked; by the system's CAs when none is given.

    Raises
    ------
    InvalidSetting
        The URL or an address is none.

    """

    name = "email"
    lowest_level: Level = "ticket"
    groups = True
    acknowledges = False

    def __init__(
        self, url: str, password: str, sender: str, readers: str, context: ssl.SSLContext | None = None
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidSetting(f"alerts.smtp_url is no URL: {error}") from error
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise InvalidSetting(
                f"alerts.smtp_url has scheme {parts.scheme!r} and host {parts.hostname!r}; it must look like {_EXAMPLE}"
            )
        if parts.password is not None:
            raise InvalidSetting("alerts.smtp_url holds a password; give it as PACEHOUND_ALERTS_SMTP_PASSWORD instead")
        self._readers = [_address("alerts.email_to", one) for one in readers.split(",") if one.strip()]
        if not self._readers:
            raise InvalidSetting("alerts.email_to is empty; give it an address, or several separated by commas")
        self._sender = _address("alerts.email_from", sender)
        self._is_tls = parts.scheme == "smtps"
        self._host = parts.hostname
        self._port = port or (465 if self._is_tls else 587)
        self._user = unquote(parts.username or "")
        self._password = password
        self._context = context or ssl.create_default_context()

    def deliver(self, notice: Notice) -> Delivery:
        """Send once, over a connection of its own: minutes lie between two, and servers drop what is idle."""
        message = message_of(notice, self._sender, self._readers)
        return self._with_server(lambda server: _told(server.send_message(message)))

    def reach(self) -> Delivery:
        """Whether the server takes us in."""
        return self._with_server(lambda server: Delivery(outcome="delivered", detail=str(server.noop()[0])))

    def close(self) -> None:
        """No connection is kept."""

    def _with_server(self, act: Callable[[smtplib.SMTP], Delivery]) -> Delivery:
        place = f"{self._host}:{self._port}"
        try:
            with self._connected() as server:
                return act(server)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            return _refused(place, min(codes, default=550))
        except smtplib.SMTPResponseException as error:
            return _refused(place, error.smtp_code)
        except smtplib.SMTPNotSupportedError as error:
            return Delivery(outcome="refused", detail=f"{place}: {error}")
        except (smtplib.SMTPException, OSError) as error:
            return Delivery(outcome="unavailable", detail=f"{place}: {type(error).__name__}")
        except ValueError as error:  # a text that no header can hold
            return Delivery(outcome="refused", detail=f"{place}: {type(error).__name__}")

    def _connected(self) -> smtplib.SMTP:
        if self._is_tls:
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=ANSWER_TIMEOUT_S, context=self._context
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=ANSWER_TIMEOUT_S)
        try:
            server.ehlo()
            if not self._is_tls and (self._host not in _LOOPBACK or server.has_extn("starttls")):
                server.starttls(context=self._context)
                server.ehlo()
            if self._user:
                server.login(self._user, self._password)
        except BaseException:
            server.close()
            raise
        return server


def message_of(notice: Notice, sender: str, readers: list[str]) -> EmailMessage:
    """The message of a notice."""
    message = EmailMessage(policy=SMTP)
    state = notice.state if notice.ask is None else "waits for a yes"
    subject = f"[{notice.level}] {state}: {notice.text}"
    message["Subject"] = plain(subject).replace("\r", " ").replace("\n", " ")[:LONGEST_SUBJECT]
    message["From"] = sender
    message["To"] = ", ".join(readers)
    message["Date"] = formatdate(notice.incident.time_ns / 1e9)
    thread = f"<{notice.dedup_key}@pacehound.invalid>"
    message["Message-ID"] = thread if notice.state == "open" else f"<{notice.idempotency_key}@pacehound.invalid>"
    if notice.state != "open":
        message["In-Reply-To"] = message["References"] = thread
    message["Auto-Submitted"] = "auto-generated"
    what, cost, do = notice.lines
    body = [f"What:  {what}", f"Cost:  {cost}", f"Do:    {do}"]
    if notice.link:
        body += ["", notice.link]
    message.set_content("\n".join(body) + "\n")
    return message


def _told(refused: dict[str, tuple[int, bytes]]) -> Delivery:
    """Somebody was told; whoever was refused beside is said."""
    others = f"{len(refused)} of the addresses were refused" if refused else ""
    return Delivery(outcome="delivered", detail=others)


def _refused(place: str, code: int) -> Delivery:
    """4xx is for now, and a login that is refused may be put right; anything else is for ever."""
    return Delivery(outcome="unavailable" if 400 <= code < 500 else "refused", detail=f"{place} answered {code}")


def _address(setting: str, text: str) -> str:
    address = parseaddr(text.strip())[1]
    if address.count("@") != 1 or address.startswith("@") or address.endswith("@") or not address.isprintable():
        raise InvalidSetting(f"{setting} has {text.strip()!r}; it must be an address, as in oncall@example.org")
    return address
