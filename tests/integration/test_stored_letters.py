"""Where there is no Kafka, `pacehound dead-letters` reads the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pacehound import cli
from pacehound.bus import Message
from pacehound.model import codec, topics
from storage.client import Store
from tests.fakes.stored import write

pytestmark = [pytest.mark.integration]


def test_letters_of_a_store_are_listed_and_shown_and_cannot_be_replayed(tmp_path: Path) -> None:
    bad = Message(topic="calls", key="c", partition=3, offset=8, value=b"\xff noise")
    topic = topics.DEAD_LETTERS.name
    with Store.open(tmp_path) as store:
        encoded = [codec.encode(letter) for letter in write(store, [bad]).dead_letters]
        write(store, [Message(topic=topic, key="calls", partition=0, offset=n, value=v) for n, v in enumerate(encoded)])

    def pacehound(*arguments: str) -> str:
        result = CliRunner().invoke(cli.pacehound, ["dead-letters", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    (row,) = json.loads(pacehound("list", "--json", "--store", str(tmp_path)))["letters"]
    assert (row["source_topic"], row["partition"], row["offset"], row["payload_bytes"]) == ("calls", 3, 8, 7)
    assert "calls/3@8" in pacehound("list", "--store", str(tmp_path))
    assert "ff 20 6e 6f 69 73 65" in pacehound("show", row["id"][:10], "--store", str(tmp_path))
    refused = CliRunner().invoke(
        cli.pacehound, ["dead-letters", "replay", "--all"], env={"PACEHOUND_KAFKA_SERVERS": ""}
    )
    assert refused.exit_code == 2
    assert "kafka.servers is not set" in refused.stderr
