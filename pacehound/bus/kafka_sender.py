"""The agent's way to Kafka: takes encoded messages, finds where each belongs, and waits until all are acknowledged.

Nothing waits here between two calls of `send`: what was not acknowledged in time is given up, and whoever holds the
messages (the agent's outbox) sends them again. Some of them may have arrived all the same, so a reader can meet a
stretch of a stream twice, from its first message on and in order. Stage one uses it once, and the store goes by a row's
identity.

A producer that has given something up is not used again. librdkafka can drop what waits (purge), but afterwards new
messages on the same producer were lost, or came with a gap before them, when the broker had stood still (in
two of four runs). Closing the connection leaves the broker with whole requests in order, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

from pacehound.bus.kafka import KafkaProducer, client_config
from pacehound.bus.kafka_rights import WRITTEN_BY_AGENTS
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.bus.otlp import SendResult
from pacehound.errors import InvalidInput, MalformedMessage, Unavailable
from pacehound.model import codec, column_records, topics
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.model.routing import host_stream
from pacehound.model.shards import Place, shard_key
from pacehound.model.topics import Topic
from pacehound.settings import KafkaSettings

ACKNOWLEDGED_WITHIN_S = 5.0
JOINED_BYTES = 512 * 1024
"""Messages are joined up to here: well below the 1 MB that a broker takes unless it is told otherwise."""
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""More than any request: the agent hands over 2 MB at a time, or one message."""

_ON_A_COMMUNICATOR = {"pacehound.topology", "pacehound.progress", "pacehound.markers"}
_ON_A_HOST = {"pacehound.host", "pacehound.vitals", "pacehound.evidence"}
_ON_A_JOB = {"pacehound.command_result"}


class _Routing(msgspec.Struct):
    """What routing needs of a JSON body; msgspec skips the rest without making objects of it."""

    communicator: str = ""
    job: str = ""
    host: str = ""


def routed(message: bytes) -> list[tuple[Topic, str, bytes]]:
    """For each event of a message: the topic it goes to, its key there, and its own bytes.

    The same as `routing.route` says of the decoded event, without decoding it: a batch of calls is not looked into,
    its key stands in the attributes.

    Raises
    ------
    MalformedMessage
        It is no message of ours, or of a kind that no agent sends.

    """
    records = codec.records_of(message)
    return [
        (*_routed(resource, record), message if len(records) == 1 else codec.single(resource, record))
        for resource, record in records
    ]


def joined(messages: Sequence[bytes]) -> list[tuple[Topic, str, bytes]]:
    """What to send: (topic, key, value), with the events of one key on one topic in one message, in their order.

    A batch of calls and the promise that closes it travel together: every consumer pays for each message. One after
    the other, OTLP messages are one message. Between keys there is no order, neither here nor in the log.

    >>> from pacehound.model.events import HostSample
    >>> told = [codec.encode(HostSample(job="j", attempt=0, time_ns=t, host="h", processes=())) for t in (1, 2)]
    >>> [(topic.name, len(codec.decode(value))) for topic, key, value in joined(told)]
    [('hosts', 2)]
    """
    made: list[tuple[Topic, str, bytearray]] = []
    last: dict[tuple[str, str], bytearray] = {}
    for message in messages:
        for topic, key, value in routed(message):
            body = last.get((topic.name, key))
            if body is None or len(body) + len(value) > JOINED_BYTES:
                body = last[topic.name, key] = bytearray()
                made.append((topic, key, body))
            body += value
    return [(topic, key, bytes(body)) for topic, key, body in made]


def _routed(resource: ResourceLogs, record: LogRecord) -> tuple[Topic, str]:
    name = record.event_name
    if name == column_records.CALLS_EVENT:
        for attribute in record.attributes:
            if attribute.key == "pacehound.communicator":
                return topics.CALLS, attribute.value.string_value
        raise MalformedMessage(f"{name} without the attribute 'pacehound.communicator'")
    if name == column_records.FLUSH_EVENT:
        return topics.CALLS, _shard_key(resource, record)
    if name == column_records.OPERATIONS_EVENT:
        named = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
        return topics.OPS, host_stream(named.get("pacehound.job", ""), named.get("host.name", ""))
    if name not in _ON_A_COMMUNICATOR and name not in _ON_A_HOST and name not in _ON_A_JOB:
        raise MalformedMessage(f"event {name!r} is none that an agent sends to Kafka")
    try:
        routing = msgspec.json.decode(record.body.bytes_value, type=_Routing)
    except UNREADABLE_JSON as error:
        raise MalformedMessage(f"{name}: {error}") from error
    if name in _ON_A_JOB:
        return topics.RESULTS, routing.job
    if name in _ON_A_HOST:
        return topics.HOSTS, host_stream(routing.job, routing.host)
    return topics.CALLS, routing.communicator


def _shard_key(resource: ResourceLogs, record: LogRecord) -> str:
    said = {attribute.key: attribute.value for attribute in record.attributes}
    named = {attribute.key: attribute.value for attribute in resource.resource.attributes}
    if column_records.SHARD not in said or "pacehound.job" not in named or "pacehound.attempt" not in named:
        raise MalformedMessage(
            f"{record.event_name} without its job, its attempt or the attribute {column_records.SHARD!r}"
        )
    job, attempt = named["pacehound.job"].string_value, named["pacehound.attempt"].int_value
    is_home = column_records.HOME in said and said[column_records.HOME].bool_value
    return shard_key(job, attempt, Place(said[column_records.SHARD].int_value, is_home))


class KafkaSender:
    """Sends messages to Kafka; one request at a time, each call waits for the acknowledgements.

    Not thread-safe. The topics are made, or looked at, before the first message.

    Parameters
    ----------
    settings
        `kafka.*`; `servers` says where.
    name
        This client, in the broker's logs.
    acknowledged_within_s
        How long `send` waits.

    Raises
    ------
    InvalidSetting
        No broker is named, or the client file cannot be used.

    """

    def __init__(
        self, settings: KafkaSettings, name: str, *, acknowledged_within_s: float = ACKNOWLEDGED_WITHIN_S
    ) -> None:
        self._settings = settings
        self._within_s = acknowledged_within_s
        self._name = name
        self._producer: KafkaProducer | None = None
        client_config(settings)

    def send(self, messages: Sequence[bytes]) -> SendResult:
        """Put messages on their topics; what has one key stays in order.

        Raises
        ------
        Unavailable
            Not everything was acknowledged in time. Send all of it again.
        RejectedMessage
            One of them will never be taken: it is too large, or no message of ours.

        """
        routes = joined(messages)
        producer = self._producer or self._connected()
        outcomes: list[str] = []
        try:
            for topic, key, value in routes:
                producer.publish(topic, key, value, outcomes.append)
            producer.flush(self._within_s)
            if len(outcomes) < len(routes) or any(outcomes):
                failed = next(filter(None, outcomes), "nothing heard of some")
                raise Unavailable(f"Kafka at {self._settings.servers} did not take every message: {failed}")
        except Exception:
            self._producer = None
            producer.close(0.0)
            raise
        return SendResult()

    def close(self) -> None:
        """Let go of the connections."""
        if self._producer is not None:
            self._producer.close(0.0)

    def _connected(self) -> KafkaProducer:
        """A new producer, once a broker answers: while none does, there is nothing that could pile up."""
        try:
            ensure_topics(self._settings, WRITTEN_BY_AGENTS, self._within_s)
        except InvalidInput as error:  # a cluster that is set up for another version: keep the messages meanwhile
            raise Unavailable(str(error)) from error
        self._producer = KafkaProducer(self._settings, self._name, max_bytes=MAX_WAITING_BYTES)
        return self._producer
