"""What a store has seen of failures: how many ranks, in how much time of all ranks, runs that did not fail included."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pacehound import cli
from storage.client import Store
from storage.read import ask
from tests.fakes.events import START_NS, finding, incident, topology
from tests.store.test_plan_command import step
from tests.store.test_store_contract import write


def gone(number: int, ranks: tuple[int, ...], kind: str = "exit", verdict: str = "culprit"):
    one = finding(
        id=f"f{number}", kind=kind, verdict=verdict, cause=None, culprits=ranks if verdict != "unknown" else ()
    )
    return [one, incident(id=f"i{number}", findings=(one,), opened_ns=START_NS + number)]


def seen(store: Store, but: str = ""):
    (row,) = ask(store, "recovery/failures", incident=but).to_pylist()
    return row


def test_an_empty_store_has_seen_nothing(store):
    assert seen(store) == {"n_failures": 0, "rank_s": 0.0, "n_attempts": 0}


def test_ranks_that_left_or_held_their_job_up_are_counted_where_they_are_proven_and_no_slow_ones(store):
    write(store, [*gone(0, (1, 2)), *gone(1, (3,), kind="hang"), *gone(2, (), verdict="unknown")])
    write(store, [*gone(3, (0,), kind="slow"), *gone(4, (0,), verdict="suspected")])
    assert seen(store)["n_failures"] == 3
    assert seen(store, but="i0")["n_failures"] == 1


def test_attempts_without_a_failure_have_been_watched_too(store):
    write(store, [topology(time_ns=START_NS), *(step(0, n, 100.0 * n, 1.0) for n in range(3))])
    before = seen(store)
    assert before["rank_s"] == pytest.approx(2 * 200.0)
    assert before["n_attempts"] == 1  # of two ranks, over 200 s
    write(store, [replace(topology(time_ns=START_NS), attempt=1), step(1, 0, 50.0, 1.0)])
    assert seen(store)["n_attempts"] == 2
    assert seen(store)["rank_s"] == pytest.approx(2 * 250.0)


def test_recover_counts_them_where_it_is_given_the_store(own_store: Store, tmp_path: Path):
    pytest.importorskip("scipy")
    write(own_store, [*gone(0, (1, 2)), topology(time_ns=START_NS), *(step(0, n, 1800.0 * n, 1.0) for n in range(3))])
    own_store.close()
    model = ("--model", "layers=8,forward_ms=8,parameter_mb=40", "--dp", "4", "--pp", "2")
    command = ["recover", "--nodes", "8", "--failed", "3", *model, "--store", str(tmp_path / "store"), "--json"]
    done = CliRunner().invoke(cli.pacehound, command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["history"].startswith("3 failed in 2.0 h of ranks")
