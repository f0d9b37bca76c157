"""Whom a sender trusts, against real TLS servers: the agent's sender and the launcher's question alike."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from pacehound.bus.otlp import OtlpProducer
from pacehound.bus.tls import Trust
from pacehound.errors import PacehoundError, Unavailable
from pacehound.launcher.attempt import ask_endpoint
from pacehound.launcher.destination import Destination
from pacehound.model import codec
from pacehound.model.events import Tick
from pacehound.runtime.head.attempts import Answer
from pacehound.runtime.head.certificate import Certificate, certificate_for
from pacehound.settings import TlsSettings
from tests.fakes import head_node as fake

LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
SECRET = {"authorization": "Bearer s3cret"}


def send(url: str, trust: Trust) -> None:
    producer = OtlpProducer(url, SECRET, trust=trust, timeout_s=10.0)
    try:
        producer.send([codec.encode(Tick(job="j", attempt=0, time_ns=1, stream="c"))])
    finally:
        producer.close()


def ask(url: str, trust: Trust) -> None:
    assert ask_endpoint(Destination(url=url, headers=SECRET, trust=trust), "j", "h", within_s=30.0) == Answer(0)


both_ways = pytest.mark.parametrize("speak", [send, ask])


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


def given(leaf: trustme.LeafCert, folder: Path) -> Certificate:
    """As a head is given it."""
    leaf.private_key_and_cert_chain_pem.write_to_path(str(folder / "given.pem"))
    found = certificate_for(
        TlsSettings(certificate_file=str(folder / "given.pem")), folder, asked=None, is_reachable=True
    )
    assert found is not None
    return found


def own(folder: Path) -> Certificate:
    found = certificate_for(TlsSettings(), folder, asked=None, is_reachable=True)
    assert found is not None
    return found


@both_ways
def test_a_certificate_that_a_ca_has_signed_is_checked_with_that_ca(
    speak: Callable[[str, Trust], None], authority: trustme.CA, ca_file: str, tmp_path: Path
) -> None:
    with fake.head_node(given(authority.issue_cert("127.0.0.1"), tmp_path).context) as node:
        speak(node.endpoint, Trust(ca_file=ca_file))
        assert [request.headers["authorization"] for request in node.requests] == ["Bearer s3cret"]


@both_ways
def test_the_cas_of_this_machine_are_asked_where_no_other_is_named(
    speak: Callable[[str, Trust], None],
    authority: trustme.CA,
    ca_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake.head_node(given(authority.issue_cert("127.0.0.1"), tmp_path).context) as node:
        with pytest.raises(Unavailable, match="unable to get local issuer certificate; name its CA in OTEL_EXPORTER"):
            speak(node.endpoint, Trust())
        assert node.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", ca_file)
        speak(node.endpoint, Trust())


@both_ways
@pytest.mark.parametrize(
    ("host", "ends", "said"),
    [("127.0.0.2", None, "IP address mismatch"), ("127.0.0.1", LONG_AGO, "certificate has expired")],
)
def test_a_certificate_of_another_host_or_of_the_past_is_refused_before_anything_is_sent(
    speak: Callable[[str, Trust], None],
    host: str,
    ends: datetime.datetime | None,
    said: str,
    authority: trustme.CA,
    ca_file: str,
    tmp_path: Path,
) -> None:
    begins = LONG_AGO - datetime.timedelta(days=1)
    leaf = authority.issue_cert(host, not_before=begins, not_after=ends)
    with fake.head_node(given(leaf, tmp_path).context) as node:
        before_s = time.monotonic()
        with pytest.raises(
            Unavailable, match=f"is not trusted: its certificate is refused: .*{said}.*; the head needs"
        ):
            speak(node.endpoint, Trust(ca_file=ca_file))
        assert time.monotonic() - before_s < 10.0, "it is not asked again and again"
        assert node.requests == []


@both_ways
def test_a_head_s_own_certificate_is_known_by_its_pin_alone(
    speak: Callable[[str, Trust], None], ca_file: str, tmp_path: Path
) -> None:
    certificate = own(tmp_path)
    with fake.head_node(certificate.context) as node:
        speak(node.endpoint, Trust(pin=certificate.pin))
        assert len(node.requests) == 1
        for others in (Trust(), Trust(ca_file=ca_file)):
            with pytest.raises(Unavailable, match="self-signed certificate"):
                speak(node.endpoint, others)
        assert len(node.requests) == 1


@both_ways
def test_another_key_than_the_pinned_one_is_told_nothing_whoever_signed_it(
    speak: Callable[[str, Trust], None], authority: trustme.CA, ca_file: str, tmp_path: Path
) -> None:
    expected = own(tmp_path).pin
    (tmp_path / "other").mkdir()
    for other in (given(authority.issue_cert("127.0.0.1"), tmp_path), own(tmp_path / "other")):
        with fake.head_node(other.context) as node:
            with pytest.raises(PacehoundError) as refused:
                speak(node.endpoint, Trust(pin=expected, ca_file=ca_file))
            said = f"is not trusted: its certificate is sha256:{other.pin}, and the token names sha256:{expected}: "
            assert said in str(refused.value)
            assert str(refused.value).endswith("give the token that its `pacehound up` prints now")
            assert node.requests == []


@both_ways
def test_a_receiver_that_speaks_no_tls_is_told_nothing_and_named(
    speak: Callable[[str, Trust], None], tmp_path: Path
) -> None:
    with fake.head_node() as node:
        url = node.endpoint.replace("http:", "https:")
        for trust in (Trust(), Trust(pin="0" * 64)):
            with pytest.raises(Unavailable, match="is not trusted: no TLS with it"):
                speak(url, trust)
        assert node.requests == []


def test_a_head_with_tls_that_is_asked_without_it_leads_to_the_right_address(tmp_path: Path) -> None:
    with (
        fake.head_node(own(tmp_path).context) as node,
        pytest.raises(Unavailable, match=r"\(a head that speaks TLS is at https://\)"),
    ):
        send(node.endpoint.replace("https:", "http:"), Trust())


def test_the_question_finds_its_answer_over_tls(tmp_path: Path) -> None:
    certificate = own(tmp_path)
    with fake.head_node(certificate.context) as node:
        node.answers = [fake.Answer(body=json.dumps({"attempt": 7}).encode())]
        head = Destination(url=node.endpoint, trust=Trust(pin=certificate.pin))
        assert ask_endpoint(head, "j", "h", within_s=30.0) == Answer(7)
