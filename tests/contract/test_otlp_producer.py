"""The way to a head node, against a real HTTP server: what goes out, and what every answer means."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pacehound.bus.otlp import OtlpProducer, logs_url
from pacehound.bus.otlp_headers import bearer, parse_headers
from pacehound.errors import BusFull, InvalidSetting, PacehoundError, RejectedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.events import Tick
from tests.fakes import head_node as fake


def tick(number: int) -> bytes:
    return codec.encode(Tick(job="j", attempt=0, time_ns=number, stream="c"))


@pytest.fixture
def node() -> Iterator[fake.HeadNode]:
    with fake.head_node() as node:
        yield node


@pytest.fixture
def producer(node: fake.HeadNode) -> Iterator[OtlpProducer]:
    producer = OtlpProducer(node.endpoint, bearer("secret"), timeout_s=5.0)
    yield producer
    producer.close()


def test_many_messages_are_one_otlp_request_in_order(node: fake.HeadNode, producer: OtlpProducer) -> None:
    assert producer.send([tick(1), tick(2)]).rejected == 0
    (request,) = node.requests
    assert request.path == "/v1/logs"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert request.headers["authorization"] == "Bearer secret"
    assert "content-encoding" not in request.headers
    assert fake.is_otlp_request(request.body)
    assert [event.time_ns for event in codec.decode(request.body)] == [1, 2]


def test_a_large_body_is_compressed(node: fake.HeadNode, producer: OtlpProducer) -> None:
    messages = [tick(number) for number in range(100)]
    producer.send(messages)
    (request,) = node.requests
    assert request.headers["content-encoding"] == "gzip"
    assert request.body == b"".join(messages)
    assert int(request.headers["content-length"]) < len(request.body) / 5


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RejectedMessage),
        (401, Unavailable),
        (403, Unavailable),
        (404, Unavailable),
        (408, Unavailable),
        (413, RejectedMessage),
        (415, RejectedMessage),
        (422, RejectedMessage),
        (429, BusFull),
        (500, Unavailable),
        (502, Unavailable),
        (503, BusFull),
        (504, Unavailable),
        (302, Unavailable),
    ],
)
def test_what_each_answer_means(
    node: fake.HeadNode, producer: OtlpProducer, status: int, error: type[PacehoundError]
) -> None:
    node.answers = [fake.Answer(status=status, headers={"location": "/elsewhere"} if status == 302 else {})]
    with pytest.raises(error, match=str(status)):
        producer.send([tick(1)])
    assert producer.send([tick(1)]).rejected == 0  # the next one gets through


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("", None), ("soon", None), ("-1", None), ("nan", None), ("1e9", 60.0)]
)
def test_a_busy_node_may_say_when_to_come_again(
    node: fake.HeadNode, producer: OtlpProducer, header: str, seconds: float | None
) -> None:
    node.answers = [fake.Answer(status=429, headers={"Retry-After": header} if header else {})]
    with pytest.raises(BusFull) as caught:
        producer.send([tick(1)])
    assert caught.value.retry_after_s == seconds


def test_rejected_records_are_reported_not_sent_again(node: fake.HeadNode, producer: OtlpProducer) -> None:
    node.answers = [fake.Answer(body=fake.partial_success(2, "two are malformed"))]
    receipt = producer.send([tick(1), tick(2), tick(3)])
    assert (receipt.rejected, receipt.message) == (2, "two are malformed")


def test_an_answer_in_another_form_counts_as_taken(node: fake.HeadNode, producer: OtlpProducer) -> None:
    node.answers = [fake.Answer(body=b'{"partialSuccess":{}}')]
    assert producer.send([tick(1)]).rejected == 0


def test_a_node_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        producer = OtlpProducer(f"http://127.0.0.1:{taken.getsockname()[1]}", timeout_s=1.0)
        with pytest.raises(Unavailable, match="does not answer"):
            producer.send([tick(1)])
        producer.close()


def test_a_node_that_never_answers_is_unavailable_after_the_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        producer = OtlpProducer(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(Unavailable, match="ReadTimeout"):
            producer.send([tick(1)])
        producer.close()


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://head:4318", "http://head:4318/v1/logs"),
        ("https://head/otlp/", "https://head/otlp/v1/logs"),
        (" http://[::1]:4318 ", "http://[::1]:4318/v1/logs"),
    ],
)
def test_the_endpoint_is_a_base_url(endpoint: str, url: str) -> None:
    assert logs_url(endpoint) == url


@pytest.mark.parametrize("endpoint", ["", "head:4318", "grpc://head:4317", "http://", "/v1/logs"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidSetting, match="no URL"):
        logs_url(endpoint)


def test_headers_are_percent_decoded_pairs() -> None:
    assert parse_headers("Authorization=Bearer%20a%3Db, x-tenant = t1 ,,k=") == {
        "authorization": "Bearer a=b",
        "x-tenant": "t1",
        "k": "",
    }


@pytest.mark.parametrize("text", ["secret", "a=1,secret", "=secret"])
def test_headers_that_are_no_pairs_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_headers(text)
    assert "secret" not in str(caught.value)


def test_a_header_that_cannot_be_sent_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidSetting) as caught:
        OtlpProducer("http://head:4318", {"authorization": "Bearer sécret\u4e2d"})
    assert "cret" not in str(caught.value)
