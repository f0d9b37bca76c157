"""What the page says of a job that is told of in digests: they are no rounds, and no moment counts twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pacehound.clock import ManualClock
from storage.client import Store
from tests.fakes import page_store
from tests.fakes.events import START_NS
from tests.fakes.shared_store import copy_store
from web.answers.rounds import rank_times, rounds
from web.source import Source

INCIDENT = "slow-incident"


def test_digests_are_no_rounds_and_calls_behind_them_take_no_time_twice(empty_store: Path, tmp_path: Path) -> None:
    with Store.open(copy_store(empty_store, tmp_path / "store")) as store:
        page_store.fill(store)
        source = Source(page_store.Stored(store), clock=ManualClock(START_NS))
        calls_alone = rounds(source, INCIDENT)
        assert calls_alone is not None
        assert calls_alone["rounds"]

        def shares() -> Any:
            told = rank_times(source, INCIDENT)
            assert told is not None
            return told[0], told[1].tobytes()

        def say_again_as(kind: str) -> None:
            store.command(
                f"INSERT INTO stored_calls SELECT * REPLACE(concat(source, '{kind}') AS source) FROM stored_calls"
            )

        of_calls = shares()
        say_again_as(" digests")
        assert rounds(source, INCIDENT) == calls_alone
        of_both = shares()
        assert of_both != of_calls
        say_again_as(" kept")
        assert shares() == of_both
