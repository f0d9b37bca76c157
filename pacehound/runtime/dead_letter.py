"""A message that cannot be processed as a dead letter."""

from __future__ import annotations

from pacehound.bus import Message
from pacehound.model.events import DeadLetter

LONGEST_REASON = 2_000

LARGEST_PAYLOAD_BYTES = 16 * 1024 * 1024
"""As large as a message of ours may be. A producer of somebody else's may compress more into what a broker takes."""


def dead_letter_of(message: Message, error: Exception, now_ns: int, payload: bytes | None = None) -> DeadLetter:
    """What `message` was, where it stood, and why it is set aside.

    Parameters
    ----------
    message, error
        What, and why.
    now_ns
        When it was set aside.
    payload
        The part of its value that is meant, where the rest could be processed; all of it when `None`. Of one that no
        topic would take again only the first bytes are kept, and the reason says so.

    Examples
    --------
    >>> message = Message(topic="incidents", key="j", partition=3, offset=8, value=b"x")
    >>> dead_letter_of(message, ValueError("no"), 5)
    DeadLetter(source_topic='incidents', partition=3, offset=8, time_ns=5, error='ValueError', reason='no', job='', \
attempt=0, key='j', replayed_ns=0)

    """
    kept = message.value if payload is None else payload
    reason = _encodable(str(error) or type(error).__name__)
    if len(kept) > LARGEST_PAYLOAD_BYTES:
        reason += f" (the first {LARGEST_PAYLOAD_BYTES} of {len(kept)} bytes are kept)"
    return DeadLetter(
        source_topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        time_ns=now_ns,
        error=type(error).__name__,
        reason=reason,
        payload=kept[:LARGEST_PAYLOAD_BYTES],
        key=_encodable(message.key),
    )


def _encodable(text: str) -> str:
    """Without the halves of characters that hostile bytes leave in a message, and not without end."""
    return text.encode(errors="replace").decode()[:LONGEST_REASON]
