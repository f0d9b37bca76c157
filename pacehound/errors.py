"""The errors of Pacehound, split by what the caller does about them.

PacehoundError
├── InvalidInput          say it to the user (exit status 2): a setting, a path, an argument
│   └── InvalidSetting
├── RejectedMessage       dead-letter the bytes and go on: they will never be right
│   ├── MalformedMessage      the bytes are no Pacehound event
│   ├── UnknownSchema         an event of a version that this build does not read
│   └── InvalidEvent          well-formed, but it contradicts itself or its job
│       └── PartlyRefused         that holds of a part of it; the rest was taken
└── Unavailable           try again later: a bus, a store or a head node is away
    ├── BusFull               back-pressure: the receiver is up and says "slower"
    └── StoreOwned            another process owns the store; ask it instead
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """The one that a misspelt word was probably meant for; empty where none is as alike (0 to 1).

    >>> nearest("incident", ["incidents", "sql"]), nearest("x", ["sql"])
    ('incidents', '')
    """
    import difflib  # only who has misspelt something waits for it

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)), "")


class PacehoundError(Exception):
    """Base of every error that Pacehound raises on purpose."""


class InvalidInput(PacehoundError):
    """What the user gave cannot be used; the message says what to give instead."""


class InvalidSetting(InvalidInput):
    """A setting is unknown or its value does not fit."""


class RejectedMessage(PacehoundError):
    """A message that will never be processed; it belongs in the dead letters."""


class MalformedMessage(RejectedMessage):
    """The bytes do not hold a Pacehound event."""


class UnknownSchema(RejectedMessage):
    """The event's kind or schema version is not known to this build."""


class InvalidEvent(RejectedMessage):
    """The event can be read, but what it says cannot be true."""


class PartlyRefused(InvalidEvent):
    """Some of what the event says cannot be true; the rest was taken, and `results` follow from it.

    Attributes
    ----------
    by_host
        Of what several hosts say, whose parts are refused, and why, where that is known.
    earlier
        Events that came before and had waited for this one, of which the same holds, and why.
    is_of_event
        It holds of the event itself.

    """

    def __init__(
        self,
        reason: str,
        results: Sequence[object],
        *,
        by_host: Mapping[str, RejectedMessage] | None = None,
        earlier: Sequence[tuple[Any, RejectedMessage]] = (),
        is_of_event: bool = True,
    ) -> None:
        super().__init__(reason)
        self.results = tuple(results)
        self.by_host = dict(by_host or {})
        self.earlier = tuple(earlier)
        self.is_of_event = is_of_event

    def with_results(self, results: Sequence[object]) -> PartlyRefused:
        """The same, where other results follow."""
        return PartlyRefused(
            str(self), results, by_host=self.by_host, earlier=self.earlier, is_of_event=self.is_of_event
        )


class Unavailable(PacehoundError):
    """Something that should answer does not; the same call may succeed later."""


class BusFull(Unavailable):
    """The bus holds as much as it may; publish again once consumers have moved on.

    `retry_after_s` is when the receiver asked to be asked again, where it said so.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreOwned(Unavailable):
    """The store is open in another process."""
