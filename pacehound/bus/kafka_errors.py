"""What an error that Kafka's library reports means: the one place that judges it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from pacehound.errors import Unavailable


def passes(problem: KafkaError) -> bool:
    """Whether it needs nothing but time: a broker is away or chooses a leader, or the end of a partition is reached.

    Examples
    --------
    >>> passes(KafkaError(KafkaError._TRANSPORT)), passes(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    (True, False)

    """
    return problem.retriable() or problem.code() in (
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._PARTITION_EOF,
    )


def is_nothing_to_a_reader(problem: KafkaError) -> bool:
    """Whether it is of no concern to a client that is given its partitions: it passes, or is about the client's group.

    A client must name a group and looks for it by itself; who may not read it, as agents, may still read a topic.

    Examples
    --------
    >>> is_nothing_to_a_reader(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    True
    >>> is_nothing_to_a_reader(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    False

    """
    return passes(problem) or problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def is_never_taken(problem: KafkaError) -> bool:
    """Whether the broker refuses this message however often it is sent."""
    return problem.code() in (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
    )


def code_of(error: KafkaException) -> int | None:
    """The number of what went wrong; `None` where the library gives none."""
    first = error.args[0] if error.args else error
    return first.code() if isinstance(first, KafkaError) else None


def reason_of(error: KafkaException) -> str:
    """What went wrong, in words.

    Examples
    --------
    >>> reason_of(KafkaException(KafkaError(KafkaError._TIMED_OUT, "no broker"))), reason_of(KafkaException("odd"))
    ('no broker', 'odd')

    """
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)


class ConnectionErrors:
    """What an admin client says of its connections: with a wrong password a call only tells of a "transport failure".

    Examples
    --------
    >>> errors = ConnectionErrors()
    >>> errors(KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"))
    >>> errors.reason
    'invalid credentials'

    """

    def __init__(self) -> None:
        self.reason = ""

    def __call__(self, problem: KafkaError) -> None:
        """The library reports a problem."""
        if problem.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.reason = problem.str()

    def client(self, config: dict[str, Any]) -> AdminClient:
        """An admin client that says here what is wrong with its connections, and nothing on stderr."""
        return AdminClient(config | {"error_cb": self, "log_level": 0})

    def unavailable(self, admin: AdminClient, servers: str, error: KafkaException) -> Unavailable:
        """What to raise where a call of this client has failed."""
        admin.poll(0)  # what it has to say is said now
        return Unavailable(f"Kafka at {servers}: {self.reason or reason_of(error)}")
