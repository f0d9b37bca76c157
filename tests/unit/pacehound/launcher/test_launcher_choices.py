"""What a run is called, where it sends, and which folder it shares with its ranks."""

from __future__ import annotations

import json

import pytest

from pacehound.bus.otlp_headers import format_headers, parse_headers
from pacehound.errors import InvalidInput
from pacehound.launcher.attempt import scheduled_attempt
from pacehound.launcher.destination import Destination, chosen_destination
from pacehound.launcher.entry import for_a_helper
from pacehound.launcher.job import job_name
from pacehound.launcher.run_dir import write_ended
from pacehound.settings import Settings

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
