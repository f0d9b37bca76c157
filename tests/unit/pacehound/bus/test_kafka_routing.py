"""Where an encoded message belongs on Kafka, without decoding it, and how an endpoint says that it is Kafka."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pacehound.bus.kafka import message_of
from pacehound.bus.kafka_address import is_kafka, kafka_servers
from pacehound.bus.kafka_sender import JOINED_BYTES, joined, routed
from pacehound.errors import InvalidSetting, MalformedMessage
from pacehound.model import codec
from pacehound.model.events import HostEvidence, HostVitals, Topology
from pacehound.model.operations import OPERATION_SCHEMA, Operations
from pacehound.model.routing import Event, route
from pacehound.model.topology import Layout
from simulator.job import JobSpec, simulate
from tests.fakes.events import finding


@pytest.fixture(scope="module")
def events() -> list[Event]:
    common = {"job": "jöb", "attempt": 1, "time_ns": 5, "host": "h/1"}
    of_host: list[Event] = [HostVitals(**common), HostEvidence(**common, reason="it waits")]
    rows = pa.RecordBatch.from_pydict({field.name: [0] for field in OPERATION_SCHEMA}, schema=OPERATION_SCHEMA)
    of_host.append(Operations(job="jöb", attempt=1, host="h/1", rows=rows))
    return [*simulate(JobSpec(layout=Layout(tp=2, dp=2), iterations=5)).events(), *of_host]


def test_every_event_of_an_agent_goes_where_its_decoded_form_is_routed(events: list[Event]) -> None:
    kinds = set()
    for event in events:
        message = codec.encode(event)
        assert routed(message) == [(*route(event), message)]
        kinds.add(type(event).__name__)
    on_communicators = {"CallBatch", "Markers", "Progress", "Topology"}
    assert kinds == on_communicators | {"HostEvidence", "HostSample", "HostVitals", "Operations"}


def test_several_events_in_one_message_part_again(events: list[Event]) -> None:
    few = events[:20]
    routes = routed(b"".join(codec.encode(event) for event in few))
    assert [payload for _, _, payload in routes] == [codec.encode(event) for event in few]
    assert [(topic, key) for topic, key, _ in routes] == [route(event) for event in few]


def test_what_has_one_key_travels_together_and_in_order(events: list[Event]) -> None:
    said = [event for event in events if not isinstance(event, Topology)]
    sent = joined([codec.encode(event) for event in said])
    assert len(sent) == len({route(event) for event in said})
    for topic, key, value in sent:
        expected = b"".join(codec.encode(event) for event in said if route(event) == (topic, key))
        assert value == expected


def test_a_message_is_not_joined_beyond_what_every_broker_takes() -> None:
    def evidence(time_ns: int, n_lines: int) -> bytes:
        lines = ("." * 997,) * n_lines
        return codec.encode(HostEvidence(job="j", attempt=0, time_ns=time_ns, host="h", reason="", kernel_log=lines))

    said = [evidence(t, 100) for t in range(12)]
    large = evidence(99, 2 * JOINED_BYTES // 1_000)
    sent = [value for _, _, value in joined([*said, large, said[0]])]
    assert b"".join(sent) == b"".join([*said, large, said[0]])
    assert [len(codec.decode(value)) for value in sent] == [5, 5, 2, 1, 1]


def test_what_no_agent_sends_is_refused_with_the_reason() -> None:
    with pytest.raises(MalformedMessage, match="not an OTLP logs message"):
        routed(b"\xff\xff")
    with pytest.raises(MalformedMessage, match=r"'pacehound\.finding' is none that an agent sends"):
        routed(codec.encode(finding()))


def test_an_endpoint_of_kafka_names_its_brokers() -> None:
    assert kafka_servers("kafka://a:9092,[::1]:1,c.d-e:65535") == "a:9092,[::1]:1,c.d-e:65535"
    assert not is_kafka("https://kafka:4318")


@pytest.mark.parametrize(
    "endpoint",
    ["kafka://", "kafka://a", "kafka://a:b", "kafka://a:0", "kafka://a:9092,", "kafka://u:p@a:9092", "kafka://a:70000"],
)
def test_what_is_no_broker_is_said_with_its_value(endpoint: str) -> None:
    with pytest.raises(InvalidSetting, match="HOST:PORT"):
        kafka_servers(endpoint)


def test_a_header_whose_name_is_no_text_costs_the_headers_and_not_the_message() -> None:
    class Raw:
        """A message of the client, which fails on such a name."""

        def headers(self) -> None:
            raise SystemError("returned a result with an exception set")

        def __getattr__(self, name: str) -> object:
            return lambda: {"topic": "pre.calls", "key": None, "value": None}.get(name, 7)

    message = message_of(Raw(), "pre.")
    assert (message.topic, message.key, message.value, message.offset, message.headers) == ("calls", "", b"", 7, ())
