"""A store under kill -9, and between two processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pacehound.bus import Message
from pacehound.errors import StoreOwned
from pacehound.model.codec import encode
from storage.client import Store
from tests.fakes.events import call_batch
from tests.fakes.stored import write as write_messages

pytestmark = [pytest.mark.integration]

ROOT = Path(__file__).parents[2]
CALLS_PER_BATCH = 20

# Writes batches one portion after the other, says so after each, and never ends by itself.
WRITE_FOR_EVER = """
import sys
from pathlib import Path
from tests.fakes.events import call_batch
from pacehound.bus import Message
from pacehound.model.codec import encode
from storage.client import Store
from tests.fakes.stored import write as write_messages

store = Store.open(Path(sys.argv[1]))
ordinal = 0
while True:
    batches = [call_batch(ordinal=ordinal + i) for i in range(50)]
    write_messages(store, [Message(topic="calls", key="c0", partition=0, offset=0, value=encode(b)) for b in batches])
    ordinal += 50
    print(ordinal, flush=True)
"""


def start_writer(directory):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def test_nothing_that_was_written_is_lost_and_a_repeat_doubles_nothing_after_kill_9(tmp_path):
    writer = start_writer(tmp_path)
    try:
        written = [int(writer.stdout.readline()) for _ in range(5)][-1]
    finally:
        writer.send_signal(signal.SIGKILL)
        # The pipe may hold further promises that were made before it died.
        written = max([written, *map(int, writer.stdout.read().split())])
        writer.wait(timeout=10)
        writer.stdout.close()
    with Store.open(tmp_path) as store:

        def kept():
            sql = "SELECT count() AS n, uniqExact(rank, seq) AS unique FROM calls"
            return store.query(sql).to_pylist()[0]

        before = kept()
        assert before["n"] == before["unique"] >= written * CALLS_PER_BATCH
        repeat = [encode(call_batch(ordinal=i)) for i in range(written + 50)]
        messages = [Message(topic="calls", key="c0", partition=0, offset=i, value=v) for i, v in enumerate(repeat)]
        for portion in (messages[:70], messages[70:]):
            write_messages(store, portion)
        assert kept() == {"n": (written + 50) * CALLS_PER_BATCH, "unique": (written + 50) * CALLS_PER_BATCH}


def test_a_store_in_use_by_another_process_is_refused_and_free_once_that_is_gone(tmp_path):
    writer = start_writer(tmp_path)
    try:
        writer.stdout.readline()
        with pytest.raises(StoreOwned, match=f"process {writer.pid}"):
            Store.open(tmp_path)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=10)
        writer.stdout.close()
    with Store.open(tmp_path) as store:
        assert store.query("SELECT count() AS n FROM calls").column("n")[0].as_py() > 0
