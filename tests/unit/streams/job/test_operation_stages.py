"""Operations on their way through the two stages: passed on as they are, and held by the job's merge."""

import pyarrow as pa

from pacehound.model.events import WhatIfPrice
from pacehound.model.operations import OPERATION_SCHEMA, Operations
from pacehound.model.routing import route
from pacehound.settings import Settings
from streams.job.operator import JobOperator
from streams.job.stage_two import StageTwo
from streams.rounds.stage_one import StageOne

ROWS = pa.RecordBatch.from_pydict({field.name: [0] for field in OPERATION_SCHEMA}, schema=OPERATION_SCHEMA)
EVENT = Operations(job="j", attempt=0, host="h", rows=ROWS)


def test_stage_one_passes_operations_on_and_keeps_nothing_of_their_key():
    """Its key is closed after each of them, so that a worker forgets it with the other keys that are over."""
    stage = StageOne(Settings())
    assert stage.on_event(EVENT) == [EVENT]
    assert stage.is_closed
    assert stage.on_event(EVENT) == [EVENT]
    assert stage.open_stream() is None


def test_operations_have_their_topic_and_the_key_of_their_host():
    topic, key = route(EVENT)
    assert (topic.name, key) == ("ops", "host:j/h")
    price = WhatIfPrice(
        job="j",
        attempt=0,
        time_ns=1,
        first_step=0,
        last_step=8,
        n_steps=2,
        ranks=2,
        recorded_s=1.0,
        original_s=1.0,
        ideal_s=1.0,
        slowdown=1.0,
        waste=0.0,
        discrepancy=0.0,
    )
    assert route(price)[0].name == "findings"


def test_operations_alone_begin_no_attempt():
    """What comes after an attempt has ended, or before any of its hosts has spoken, is no job."""
    stage = StageTwo("j", Settings())
    assert stage.on_event(EVENT) == []
    assert stage.attempts == {}


def test_operations_that_are_sent_twice_are_used_once():
    job = JobOperator("j", 0, Settings())
    job.on_operations(EVENT)
    job.on_operations(EVENT)
    assert len(job._merge.take_events(10)) == 1
