"""The real Jaeger, built from its module: what a demo sends opens there as one trace with all ranks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.rig.broker import free_ports
from bench.rig.realjob import until

pytestmark = [pytest.mark.integration, pytest.mark.prove]
ROOT = Path(__file__).resolve().parents[2]
MODULE = "github.com/jaegertracing/jaeger"
VERSION = "v1.76.0"
BUILD_S = 1_800.0


@pytest.fixture(scope="module")
def jaeger() -> Iterator[tuple[str, str]]:
    """Its address for spans, and that of its queries; the binary is kept, for it takes minutes to build."""
    if shutil.which("go") is None:
        pytest.skip("there is no Go to build Jaeger with")
    binary = ROOT / ".jaeger" / VERSION / "all-in-one"
    if not binary.exists():
        found = subprocess.run(
            ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], check=True, capture_output=True, text=True
        )
        # Its go.mod replaces a module, so that `go install` refuses it; as the main module it is taken.
        source = json.loads(found.stdout)["Dir"]
        build = ["go", "build", "-o", str(binary), "./cmd/all-in-one"]
        subprocess.run(build, cwd=source, check=True, timeout=BUILD_S)
    otlp, query, *others = free_ports(7)
    options = [f"--collector.otlp.http.host-port=127.0.0.1:{otlp}", f"--query.http-server.host-port=127.0.0.1:{query}"]
    names = ("admin.http", "query.grpc-server", "collector.otlp.grpc", "collector.grpc-server", "collector.http-server")
    options += [f"--{name}.host-port=127.0.0.1:{port}" for name, port in zip(names, others, strict=True)]
    process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{query}"
        until("Jaeger answers", lambda: is_there(url), 60, 0.2)
        yield f"http://127.0.0.1:{otlp}", url
    finally:
        process.terminate()
        process.wait(30)


def is_there(url: str) -> bool:
    try:
        answer(f"{url}/api/services")
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def answer(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)["data"]


def tags(span: dict[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def test_a_round_of_a_demo_opens_in_jaeger_with_all_ranks_and_the_incident_leads_to_it(jaeger: tuple[str, str]) -> None:
    otlp, url = jaeger
    command = [sys.executable, "-m", "pacehound", "demo", "--json", "--set", f"traces.endpoint={otlp}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (incident,) = json.loads(done.stdout)["incidents"]
    assert "demo" in answer(f"{url}/api/services")
    (trace,) = answer(f"{url}/api/traces/{incident['id']}")
    whole = next(span for span in trace["spans"] if span["operationName"] == "incident: slow")
    assert tags(whole)["pacehound.culprits"] == "[2]"
    rounds = {one["traceID"] for one in whole["references"] if one["traceID"] != incident["id"]}
    assert rounds
    widths = set()
    for trace_id in rounds:
        (found,) = answer(f"{url}/api/traces/{trace_id}")
        ranks = sorted(tags(span)["pacehound.rank"] for span in found["spans"])
        widths.add(len(ranks))
        assert len(set(ranks)) == len(ranks)
        assert [tags(span)["pacehound.rank"] for span in found["spans"] if tags(span).get("error")] == [2]
        assert {one["traceID"] for span in found["spans"] for one in span["references"]} == {incident["id"]}
    print(f"{len(rounds)} rounds of {sorted(widths)} ranks around incident {incident['id']}")
    assert max(widths) == 8
