"""The OTLP door as exporters and Collectors meet it."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from head_parts import sample, topology
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from bench.rig import realjob
from pacehound.model import codec
from pacehound.runtime.head.client import HeadClient, live_owner

pytestmark = pytest.mark.integration

PROTOBUF = {"Content-Type": "application/x-protobuf"}
TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture(scope="module")
def head(product_root, tmp_path_factory):
    """A head with a token, on a free port: (its url, its store)."""
    from product import Product

    home = tmp_path_factory.mktemp("home")
    product = Product(product_root, home)
    record = home / "run.rec"
    process = product.start(
        "up",
        "--listen",
        "127.0.0.1:0",
        "--record",
        str(record),
        environ={"PACEHOUND_TOKEN": "s3cret"},
        stderr=subprocess.PIPE,
    )
    realjob.until("a head", lambda: live_owner(product.store), 15, 0.05)
    yield json.loads((product.store / "head.json").read_text())["url"], product
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert b"pacehound run --endpoint" in err


def post(url, body, path="/v1/logs", **headers):
    return httpx.post(url + path, content=body, headers={**PROTOBUF, **TOKEN, **headers}, timeout=10)


def test_health_needs_no_token_and_everything_else_does(head):
    url, _ = head
    assert httpx.get(f"{url}/healthz").status_code == 200
    for path in ("/metrics", "/nothing"):
        assert httpx.get(url + path).status_code == 401
    refused = httpx.post(f"{url}/v1/logs", content=b"", headers={**PROTOBUF, "Authorization": "Bearer s3cre"})
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert "pacehound_otlp_requests_total" in httpx.get(f"{url}/metrics", headers=TOKEN).text


def test_good_records_are_taken_and_bad_ones_reported(head):
    url, _ = head
    bad = codec.encode(sample()).replace(b"pacehound.host", b"pacehound.hose")
    answer = post(url, codec.encode(topology()) + bad)
    assert answer.status_code == 200
    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_log_records == 1
    assert "pacehound.hose" in partial.error_message
    clean = ExportLogsServiceResponse.FromString(post(url, codec.encode(topology())).content)
    assert not clean.HasField("partial_success")


def test_gzip_is_taken_and_what_is_no_gzip_is_refused(head):
    url, _ = head
    packed = gzip.compress(codec.encode(topology()))
    assert post(url, packed, **{"Content-Encoding": "gzip"}).status_code == 200
    assert post(url, b"not gzip at all", **{"Content-Encoding": "gzip"}).status_code == 400
    assert post(url, packed, **{"Content-Encoding": "br"}).status_code in (400, 415)
    bomb = gzip.compress(bytes(80 * 1024 * 1024))
    assert post(url, bomb, **{"Content-Encoding": "gzip"}).status_code == 413


def test_what_is_no_protobuf_is_refused(head):
    url, _ = head
    assert post(url, b"\xff\xff").status_code == 400
    assert post(url, b"{}", **{"Content-Type": "application/json"}).status_code == 415
    assert httpx.get(f"{url}/v1/logs", headers=TOKEN).status_code == 405


def test_fuzzed_bytes_never_break_the_door(head):
    import random

    url, _ = head
    draw = random.Random(4)
    good = codec.encode(sample(stopped=(1,)))
    bodies = [bytearray(good) for _ in range(150)]
    for body in bodies:
        for _ in range(draw.randint(1, 8)):
            body[draw.randrange(len(body))] = draw.randrange(256)
    # An answer waits until the store has it, so that one after the other they would take a tenth of a second each.
    with httpx.Client(headers={**PROTOBUF, **TOKEN}, timeout=30) as client, ThreadPoolExecutor(16) as threads:
        answers = threads.map(lambda body: client.post(f"{url}/v1/logs", content=bytes(body)), bodies)
        assert {answer.status_code for answer in answers} <= {200, 400}
    assert httpx.get(f"{url}/healthz").status_code == 200


def test_the_attempt_of_a_run_is_told_to_who_shows_the_token(head):
    url, product = head
    question = {"job": "asks", "host": "h"}
    assert httpx.post(f"{url}/v1/attempt", json=question).status_code == 401
    ask = HeadClient(live_owner(product.store)[1]._path)
    for expected in (0, 1):
        answer = httpx.post(f"{url}/v1/attempt", json=question, headers=TOKEN)
        assert (answer.status_code, answer.json()) == (200, {"attempt": expected})
        assert ask.attempt("asks", "other", 2.0).attempt == expected
        assert post(url, codec.encode(sample(job="asks"))).status_code == 200
        assert post(url, codec.encode(sample(job="asks", closed=True, why="job ended"))).status_code == 200
    for body in (b"", b"[]", b'{"job": 3}', b'{"host": "h"}'):
        assert httpx.post(f"{url}/v1/attempt", content=body, headers=TOKEN).status_code == 400


def test_many_senders_at_once_lose_nothing(head):
    url, product = head
    with ThreadPoolExecutor(8) as threads:
        statuses = list(
            threads.map(lambda n: post(url, codec.encode(sample(job=f"many-{n}", stopped=(n,)))).status_code, range(40))
        )
    assert statuses == [200] * 40
    owner = live_owner(product.store)
    assert owner is not None
    assert owner[1].settle(10.0)
    found = {incident.job for incident in owner[1].incidents()[0]}
    assert {f"many-{n}" for n in range(40)} <= found


def test_socket_and_owner_file_are_for_this_user_alone(head):
    _, product = head
    owner = json.loads((product.store / "head.json").read_text())
    assert stat.S_IMODE(os.stat(product.store / "head.json").st_mode) == 0o600
    for path in (owner["socket"], owner["otlp_socket"]):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_second_head_is_refused_and_says_why(head):
    _, product = head
    done = product.finish("up", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert b"open in another process" in done.stderr


def test_the_recording_replays_to_the_same_bytes(product):
    """Two replays agree byte for byte, on a recording with an incident in it."""
    record = product.home / "run.rec"
    up = ("up", "--listen", "127.0.0.1:0", "--record", str(record))
    process = product.start(*up, environ={"PACEHOUND_TOKEN": ""}, stderr=subprocess.DEVNULL)
    realjob.until("a head", lambda: live_owner(product.store), 15, 0.05)
    told = json.loads((product.store / "head.json").read_text())
    url, shown = told["url"], {**PROTOBUF, "Authorization": f"Bearer {told['token']}"}
    # Every user of this machine can reach loopback: a head that was given no token has made one.
    assert httpx.post(f"{url}/v1/logs", content=codec.encode(sample()), headers=PROTOBUF).status_code == 401
    now = time.time_ns()
    for event in (
        topology(time_ns=now),
        sample(time_ns=now, stopped=(1,)),
        sample(time_ns=now + 1, closed=True, why="job ended"),
    ):
        assert httpx.post(f"{url}/v1/logs", content=codec.encode(event), headers=shown).status_code == 200
    assert httpx.post(f"{url}/v1/logs", content=b"\xff", headers=shown).status_code == 400
    owner = live_owner(product.store)
    assert owner is not None
    HeadClient(owner[1]._path).shut_down()
    process.communicate(timeout=20)
    assert process.returncode == 0
    first, second = (product.finish("replay", str(record), "--json") for _ in range(2))
    assert first.stdout == second.stdout
    events = json.loads(first.stdout)["events"]
    assert [event["state"] for event in events if event["event"] == "Incident"] == ["open", "closed"]
    assert b"Rank 1 holds the job up" in product.finish("replay", str(record)).stdout
    assert product.finish("replay", str(product.store / "head.log")).returncode == 2
