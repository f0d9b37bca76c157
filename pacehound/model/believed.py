"""What nobody believes of an event: names and texts longer than anybody writes, and attempts that never were."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from pacehound.errors import InvalidEvent
from pacehound.model.routing import Event

MAX_NAME_CHARS = 1_024
"""Names become keys of messages, and of what is kept about them."""

MAX_TEXT_BYTES = 16 * 1024
"""Of one string in an event, or of the names in a column: frames, reasons and lines of a log are shorter."""

MAX_ATTEMPT = 1 << 30
"""A run that nobody has told which it is takes the time for it, in seconds (pacehound/runtime/head/attempts.py)."""

_NAMES = ("job", "host", "communicator", "stream", "source_topic", "source")


def believed(event: Event) -> Event:
    """The event, if it claims nothing that cannot be.

    Raises
    ------
    InvalidEvent
        A name is too long for a key, or there was no such attempt.

    """
    kind: Any = type(event)
    for name in _names_of(kind):
        value = getattr(event, name)
        if len(value) > MAX_NAME_CHARS:
            raise InvalidEvent(f"the {name} has {len(value)} characters; at most {MAX_NAME_CHARS} are taken")
    if not 0 <= event.attempt <= MAX_ATTEMPT:
        raise InvalidEvent(f"attempt is {event.attempt}; it must be in 0..{MAX_ATTEMPT}")
    return event


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    fields_of_kind = {one.name for one in fields(kind)}
    return tuple(name for name in _NAMES if name in fields_of_kind)


def check_texts(name: str, body: bytes) -> None:
    """That no string of a JSON body is longer than anybody writes, or `InvalidEvent`.

    >>> check_texts("pacehound.progress", b'{"host": "h"}')
    """
    if len(body) <= MAX_TEXT_BYTES:
        return
    unescaped = body.replace(b"\\\\", b"..").replace(b'\\"', b"..") if b"\\" in body else body
    if not _has_stretch(unescaped):
        return
    longest = max(map(len, unescaped.split(b'"')[1::2]), default=0)
    if longest > MAX_TEXT_BYTES:
        raise InvalidEvent(f"{name} has a string of {longest} bytes; at most {MAX_TEXT_BYTES} are taken")


def _has_stretch(text: bytes) -> bool:
    """Somewhere there is no quote for longer than a string may be: looked for from quote to quote, as far as can be.

    Only then is it worth while to take the text to pieces.
    """
    at = -1
    while len(text) - at > MAX_TEXT_BYTES + 1:
        at = text.rfind(b'"', at + 1, at + MAX_TEXT_BYTES + 2)
        if at < 0:
            return True
    return False
