"""A head answers for what outlives it: what stands in its journal is stored with others later, or by the next head."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from head_parts import MemoryStore, parts, sample, topology
from small_disk import fill, needs_root, small_disk

from pacehound.clock import ManualClock, SystemClock
from pacehound.model import codec
from pacehound.model.events import HostSample
from pacehound.runtime.head.keeper import LONGEST_AWAY_S
from pacehound.runtime.head.node import Head
from pacehound.settings import Settings


class Operators:
    """No state of their own is kept."""

    def changed(self, *, everything=False):
        return {}, set()

    def take_back(self, parts):
        assert not parts

    def open_incidents(self):
        return set()


def head_in(folder: Path, store: MemoryStore, clock=None) -> Head:
    late = MemoryStore()
    late.messages = store.messages
    of_memory = replace(parts(store), late_writer=late, keepable=Operators())
    return Head(settings=Settings(), parts=of_memory, clock=clock or SystemClock(), state=folder / "state")


def samples(store: MemoryStore) -> list[str]:
    return [event.job for event in store.events() if isinstance(event, HostSample)]


def test_what_stands_in_the_journal_is_answered_for_before_it_is_stored(tmp_path):
    store = MemoryStore()
    head = head_in(tmp_path, store)
    head.ingest(codec.encode(sample()))
    assert head.kept == head.arrived
    assert samples(store) == []
    head.start()
    assert head.settle(5.0)
    assert samples(store) == ["j"]
    assert head.stop()


def test_what_stands_in_no_journal_is_waited_for(tmp_path):
    head = head_in(tmp_path, MemoryStore())
    head.ingest(codec.encode(topology()))
    assert head.kept < head.arrived
    head._store.loop.turn()
    assert head.kept == head.arrived


@needs_root
def test_what_the_journals_disk_does_not_take_is_waited_for(tmp_path):
    with small_disk(tmp_path / "small", 1):
        head = head_in(tmp_path / "small", MemoryStore())
        fill(tmp_path / "small")
        head.ingest(b"".join(codec.encode(sample(job=f"{number}" * 1_000)) for number in range(9)))
        assert head.kept < head.arrived
        head._late.loop.turn()
        assert head.kept == head.arrived
        head._keeper.journal.close()


def test_what_was_answered_for_is_stored_by_the_next_head_also_where_it_begins_anew(tmp_path):
    head_in(tmp_path, MemoryStore()).ingest(codec.encode(sample("first")) + codec.encode(sample("second")))
    (journal,) = (tmp_path / "state").glob("journal-*")
    later = ManualClock(journal.stat().st_mtime_ns + int((LONGEST_AWAY_S + 1) * 1e9))
    store = MemoryStore()
    assert head_in(tmp_path, store, later)._keeper.refused_why
    assert samples(store) == ["first", "second"]
    again = MemoryStore()
    head_in(tmp_path, again, later)
    assert samples(again) == [], "it is stored, and nothing is left"


def test_a_store_that_takes_nothing_keeps_what_a_killed_head_had_answered_for(tmp_path):
    head_in(tmp_path, MemoryStore()).ingest(codec.encode(sample()))
    (journal,) = (tmp_path / "state").glob("journal-*")
    later = ManualClock(journal.stat().st_mtime_ns + int((LONGEST_AWAY_S + 1) * 1e9))
    away = MemoryStore()
    away.fail_times = 1
    with pytest.raises(Exception, match="no space left"):
        head_in(tmp_path, away, later)
    store = MemoryStore()
    head_in(tmp_path, store, later)
    assert samples(store) == ["j"]


def test_a_journal_that_grows_is_written_at_once(tmp_path):
    head = head_in(tmp_path, MemoryStore())
    head._late.loop.hurried.clear()
    head.bus._held_bytes = 17 * 1024 * 1024
    head.ingest(codec.encode(sample()))
    assert head._late.loop.hurried.is_set()
    assert os.listdir(tmp_path / "state")
