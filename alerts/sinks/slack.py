"""Slack, by an incoming webhook: a message of blocks when an alert opens, and one when it is over.

The request::

    POST <alerts.slack_url>
    {"text": <one line, for the notification>, "blocks": [header, section of three lines, context with the link]}

Names are text there: what Slack takes for markup or for a mention (`&`, `<`, `>`) is escaped, and the header is plain.
Slack has no key by which it would drop a repeat: a process that is killed between the message and its note of it sends
it a second time.
"""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from alerts.notice import Delivery, Notice
from alerts.receiver import Receiver
from alerts.severity import Level
from pacehound.model.plain import plain

LONGEST_HEADER = 150
LONGEST_LINE = 980
"""Three of them, their labels and ends are a section, which Slack takes up to 3,000 characters."""
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKS = {"halt": ":rotating_light:", "page": ":warning:", "ticket": ":information_source:"}


class Slack:
    """A channel of Slack.

    Parameters
    ----------
    url
        Of an incoming webhook: a secret.
    transport
        What carries the requests; the network when none is given.

    Raises
    ------
    InvalidSetting
        The URL cannot be posted to.

    """

    name = "slack"
    lowest_level: Level = "ticket"
    groups = True
    acknowledges = True

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._receiver = Receiver(
            url, setting="alerts.slack_url", example="https://hooks.slack.com/services/…", transport=transport
        )

    def deliver(self, notice: Notice) -> Delivery:
        """Post once."""
        return self._receiver.post(msgspec.json.encode(message_of(notice)))

    def reach(self) -> Delivery:
        """Whether Slack answers."""
        return self._receiver.reach()

    def close(self) -> None:
        """Close the connections."""
        self._receiver.close()


def message_of(notice: Notice) -> dict[str, Any]:
    """The message of a notice.

    >>> from pacehound.model.events import Incident
    >>> incident = Incident(id="i", version=0, job="<!channel>", attempt=0, time_ns=0, state="open", opened_ns=0)
    >>> message_of(Notice(incident=incident))["text"]
    ':warning: job &lt;!channel&gt;: no finding; open'
    """
    what, cost, do = notice.lines
    mark = ":white_check_mark:" if notice.state == "closed" else _MARKS[notice.level]
    state = notice.state if notice.ask is None else "waits for a yes"
    title = plain(f"{state}: job {notice.incident.job}").replace("\n", " ")
    labelled = (("What", what), ("Cost", cost), ("Do", do))
    lines = [f"*{label}*: {_escaped(line, LONGEST_LINE)}" for label, line in labelled]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title[:LONGEST_HEADER], "emoji": False}},
        {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(lines)}},
    ]
    if notice.link:
        words = "Look, and say yes or no" if notice.ask_link else "The incident in Pacehound"
        link = f"<{_escaped(notice.link, LONGEST_LINE).replace('|', '%7C')}|{words}>"
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": link}]})
    return {"text": f"{mark} {_escaped(notice.text, LONGEST_LINE)}", "blocks": blocks, "unfurl_links": False}


def _escaped(text: str, longest: int) -> str:
    """The three characters that Slack takes for markup, escaped; what is too long is cut between two of them."""
    escaped = [_ENTITIES.get(character, character) for character in text]
    n_characters = 0
    for number, one in enumerate(escaped):
        n_characters += len(one)
        if n_characters > longest:
            return "".join(escaped[: max(number - 1, 0)]) + "…"
    return "".join(escaped)
