"""What a run is called, where it sends, and which folder it shares with its ranks."""

from __future__ import annotations

import json

import pytest
import trustme

from pacehound.bus.otlp_headers import format_headers, parse_headers, with_pin
from pacehound.bus.tls import Trust
from pacehound.errors import InvalidInput
from pacehound.launcher.attempt import scheduled_attempt
from pacehound.launcher.destination import Destination, chosen_destination, with_own_token
from pacehound.launcher.entry import for_a_helper
from pacehound.launcher.job import job_name
from pacehound.launcher.run_dir import write_ended
from pacehound.runtime.head.owner import Owner
from pacehound.settings import Settings

PIN = "0f" * 32
TORCHRUN = ["torchrun", "--nproc-per-node", "4", "train.py", "--lr", "1"]


@pytest.mark.parametrize(
    ("explicit", "environ", "command", "expected"),
    [
        ("mine", {"SLURM_JOB_ID": "1"}, TORCHRUN, "mine"),
        (None, {"SLURM_JOB_ID": "4711"}, TORCHRUN, "4711"),
        (None, {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3"}, TORCHRUN, "4711.3"),
        (None, {"TORCHELASTIC_RUN_ID": "none"}, ["torchrun", "--rdzv_id", "r7", "train.py"], "r7"),
        (None, {}, ["torchrun", "--rdzv-id=r8", "train.py"], "r8"),
        (None, {"PBS_JOBID": "12.server"}, ["torchrun", "--rdzv-id=none", "train.py"], "12.server"),
        (None, {"PET_RDZV_ID": "p1"}, TORCHRUN, "p1"),
        (None, {}, TORCHRUN, "train-19700101-000000-ab12"),
        (None, {}, ["./run-me"], "run-me-19700101-000000-ab12"),
    ],
)
def test_the_name_is_what_all_hosts_agree_on(explicit, environ, command, expected):
    assert job_name(explicit, environ, command, 0.0, "ab12") == expected


def test_an_endpoint_on_the_command_line_wins_over_the_environment():
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}
    assert chosen_destination("http://head:4318/", environ) == Destination(url="http://head:4318", headers={"a": "b"})
    assert chosen_destination(None, environ).url == "http://other:4318"


def test_kafka_is_an_endpoint_without_headers_and_nobody_to_ask():
    destination = chosen_destination("kafka://a:9092, b:9093/", {"PACEHOUND_TOKEN": "s3cret"})
    assert destination == Destination(url="kafka://a:9092,b:9093")
    assert destination.is_kafka
    assert not chosen_destination("http://kafka:4318", {}).is_kafka
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        chosen_destination("kafka://a", {})


@pytest.mark.parametrize(
    ("environ", "attempt"),
    [({}, 0), *(({"SLURM_RESTART_COUNT": count}, attempt) for count, attempt in (("0", 0), ("3", 3000), ("x", 0)))],
)
def test_over_kafka_the_scheduler_counts_and_leaves_room_for_torchrun_s_own_restarts(environ, attempt):
    assert scheduled_attempt(environ) == attempt
    later = scheduled_attempt({"SLURM_RESTART_COUNT": "1"})
    assert later > scheduled_attempt({}) + 100  # restarts of torchrun within the first run


def test_a_client_file_is_handed_on_as_a_process_elsewhere_finds_it(tmp_path, monkeypatch):
    (tmp_path / "client.properties").write_text("sasl.mechanism=PLAIN\n")
    monkeypatch.chdir(tmp_path)
    settings = for_a_helper(Settings.load({}, ["kafka.client_file=client.properties"]))
    assert settings.as_overrides() == [f"kafka.client_file={tmp_path / 'client.properties'}"]
    with pytest.raises(InvalidInput, match="no such file"):
        for_a_helper(Settings.load({}, ["kafka.client_file=other"]))


def test_without_any_endpoint_or_with_one_for_grpc_the_head_is_ours():
    assert chosen_destination(None, {}) is None
    grpc = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert chosen_destination(None, {**grpc, "OTEL_EXPORTER_OTLP_HEADERS": "no pair"}) is None


def test_a_token_becomes_a_header_and_does_not_show():
    destination = chosen_destination("http://head:4318", {"PACEHOUND_TOKEN": "s3cret"})
    assert destination.headers == {"authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(destination)


def test_a_token_that_names_a_certificate_becomes_a_header_and_a_pin():
    shown = {"PACEHOUND_TOKEN": with_pin("s3cret", PIN)}
    pinned = Destination(url="https://head:4318", headers={"authorization": "Bearer s3cret"}, trust=Trust(pin=PIN))
    assert chosen_destination("https://head:4318", shown) == pinned


@pytest.mark.parametrize(
    ("endpoint", "token", "words"),
    [
        ("http://head:4318", with_pin("s3cret", PIN), "write https:// instead of 'http://head:4318'"),
        ("http://127.0.0.1:4318", with_pin("s3cret", PIN), "write https://"),
        ("https://head:4318", with_pin("s3cret", PIN)[:-1], "64 characters of 0-9 and a-f, not 63"),
        ("https://head:4318", with_pin("s3cret", PIN.upper()), "copy the whole line"),
    ],
)
def test_a_pin_that_could_not_be_checked_is_refused_before_the_token_is_shown(endpoint, token, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        chosen_destination(endpoint, {"PACEHOUND_TOKEN": token})
    assert "s3cret" not in str(refused.value)


def test_the_cas_of_opentelemetry_s_variable_are_found_from_elsewhere_or_refused(tmp_path, monkeypatch):
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "none.pem").write_text("no PEM")
    monkeypatch.chdir(tmp_path)
    named = {"OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem"}
    assert chosen_destination("https://head", named).trust == Trust(ca_file=str(tmp_path / "ca.pem"))
    assert chosen_destination("http://head", named).trust == Trust()
    for other, words in (("other.pem", "no such file"), ("none.pem", "no certificates of CAs")):
        with pytest.raises(InvalidInput, match=words):
            chosen_destination("https://head", {"OTEL_EXPORTER_OTLP_CERTIFICATE": other})


def test_ones_own_head_is_known_by_its_certificate_unless_somebody_said_by_which():
    owner = Owner(pid=1, host="h", socket="s", url="https://head:4318", token="t", pin=PIN)
    found = with_own_token(Destination(url="https://head:4318"), owner)
    assert (dict(found.headers), found.trust) == ({"authorization": "Bearer t"}, Trust(pin=PIN))
    said = Destination(url="https://head:4318", headers={"Authorization": "x"}, trust=Trust(ca_file="/ca.pem"))
    assert with_own_token(said, owner) == said
    assert with_own_token(Destination(url="https://other:4318"), owner) == Destination(url="https://other:4318")


@pytest.mark.parametrize("endpoint", ["head:4318", "grpc://head", "http://", ""])
def test_what_is_no_url_is_refused_before_the_command_starts(endpoint):
    with pytest.raises(InvalidInput):
        chosen_destination(endpoint, {})


def test_headers_survive_the_round_trip():
    headers = {"authorization": "Bearer a,b=c %", "x=,y": ""}
    assert parse_headers(format_headers(headers)) == headers


def test_the_first_word_on_how_it_ended_stands(tmp_path):
    write_ended(tmp_path, exit_code=0, signal_number=None, why="job ended")
    write_ended(tmp_path, exit_code=None, signal_number=9, why="watching was interrupted")
    assert json.loads((tmp_path / "ended.json").read_text()) == {"exit_code": 0, "signal": None, "why": "job ended"}
