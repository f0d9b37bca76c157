"""Events -> rows; pure. Which event fills which table is said here; of what there is much of, in gather.py."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pacehound.errors import InvalidEvent, MalformedMessage
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.columns import values_of, words
from pacehound.model.events import (
    Asked,
    Changepoint,
    Command,
    CommandResult,
    DeadLetter,
    Decision,
    Finding,
    GroupOutlier,
    HostEvidence,
    HostSample,
    Incident,
    Instant,
    LearntRounds,
    Notification,
    ProcessState,
    RankStack,
    Topology,
    WhatIfPrice,
)
from pacehound.model.operations import OPTYPES, Operations
from pacehound.model.orders import read_order
from pacehound.model.routing import Event
from storage import schemas

Row = dict[str, Any]

UNFIT = (pa.ArrowException, OverflowError, UnicodeError, TypeError)
_NO_PROCESS = ProcessState(rank=-1, pid=0, state="unknown", since_ns=0)
_NO_STACK = RankStack(rank=-1, pid=0, taken_by="proc")


def rows_of(event: Event) -> list[tuple[str, Row]]:
    """The rows of an event, each with its table; none for what is not stored.

    Progress, ticks, watermarks and rounds are the streams' own means: what they led to is stored, they are not.
    The calls themselves are columns already and go through `calls_table`, as operations do through `operations_table`;
    of what there is much of (`gather.py` has the list) columns of many are made together. Here a batch gives the row
    that says what its source could see and what was dropped.

    Examples
    --------
    >>> sample = HostSample(job="j", attempt=0, time_ns=9, host="h", processes=(), closed=True, closed_why="job ended")
    >>> [(table, row["rank"], row["closed_why"]) for table, row in rows_of(sample)]
    [('stored_host_samples', -1, 'job ended')]

    """
    match event:
        case CallBatch():
            return [(schemas.BATCHES, _batch(event))]
        case Topology():
            return [(schemas.TOPOLOGY, _plain(event, schemas.TOPOLOGY))]
        case HostSample():
            return [(schemas.HOST_SAMPLES, _process(event, p)) for p in event.processes or (_NO_PROCESS,)]
        case HostEvidence():
            return [(schemas.HOST_EVIDENCE, _stack(event, stack)) for stack in event.stacks or (_NO_STACK,)]
        case Changepoint():
            return [(schemas.CHANGEPOINTS, _changepoint(event))]
        case GroupOutlier():
            return [(schemas.GROUP_OUTLIERS, _plain(event, schemas.GROUP_OUTLIERS) | _named(event))]
        case LearntRounds():
            return [(schemas.LEARNT_ROUNDS, _plain(event, schemas.LEARNT_ROUNDS))]
        case Finding():
            return [(schemas.FINDINGS, _finding(event))]
        case WhatIfPrice():
            return [(schemas.PRICES, row) for row in _prices(event)]
        case Incident():
            return [(schemas.INCIDENTS, _incident(event))]
        case Decision():
            return [(schemas.DECISIONS, _plain(event, schemas.DECISIONS) | _named(event))]
        case Notification():
            return [(schemas.NOTIFICATIONS, _plain(event, schemas.NOTIFICATIONS) | {"sent_ns": event.time_ns})]
        case Asked():
            return [(schemas.ASKED, _plain(event, schemas.ASKED))]
        case Command():
            return [(schemas.COMMANDS, _command(event))]
        case CommandResult():
            judged = [(schemas.VALIDATIONS, row) for row in _validations(event)]
            return [(schemas.COMMAND_RESULTS, _command_result(event)), *judged]
        case DeadLetter():
            return [(schemas.DEAD_LETTERS, _dead_letter(event))]
        case _:
            return []


def _command(event: Command) -> Row:
    row = {"event_id": event.identity(), "job": event.job, "attempt": event.attempt, "time_ns": event.time_ns}
    row |= {"command": "", "what": "", "incident": "", "why": "", "signed_by": event.key, "expires_ns": 0}
    try:
        order = read_order(event.order)
    except MalformedMessage as error:
        return row | {"why": f"it cannot be read: {error}"}
    return row | {
        "command": order.id,
        "what": order.what_name,
        "incident": order.incident,
        "why": order.why,
        "expires_ns": order.expires_ns,
    }


def _command_result(event: CommandResult) -> Row:
    return {
        "event_id": event.identity(),
        "job": event.job,
        "attempt": event.attempt,
        "host": event.host,
        "command": event.order,
        "what": event.what,
        "incident": event.incident,
        "refused": event.refused,
        "reason": event.reason,
        "ranks": [one.rank for one in event.ranks or event.trainers],
        "states": [one.state for one in event.ranks or event.trainers],
        # Of an offer to scripts: steps of the training.
        "rounds": [one.launched for one in event.ranks] or [one.step for one in event.trainers],
        "time_ns": event.time_ns,
    }


def _validations(event: CommandResult) -> list[Row]:
    return [
        {
            "event_id": event.identity(),
            "job": event.job,
            "attempt": event.attempt,
            "incident": event.incident,
            "ranks": list(one.ranks),
            "hosts": list(one.hosts),
            "verdict": one.verdict,
            "measured": one.measured,
            "ratio": one.ratio or 0.0,
            "reason": one.reason,
            "time_ns": event.time_ns,
        }
        for one in event.judged
    ]


def arrow_rows(table: str, rows: Sequence[Row]) -> pa.Table:
    """Rows of one table as columns.

    Raises
    ------
    InvalidEvent
        A value does not fit its column (an integer of more than 64 bits, a rank of more than 32).

    """
    schema = schemas.ROW_TABLES[table]
    try:
        # All columns at once: a call into Arrow for each costs three times as much as what most events hold.
        return pa.Table.from_struct_array(pa.array(rows, pa.struct(schema)))
    except UNFIT as error:
        for field in schema:
            column_of(table, field.name, [row[field.name] for row in rows])
        raise InvalidEvent(f"a value does not fit a column of {table}: {error}") from error


def column_of(table: str, name: str, values: Sequence[Any]) -> pa.Array:
    """A column of a table; errors as in `arrow_rows`."""
    kind = schemas.ROW_TABLES[table].field(name).type
    try:
        return pa.array(values, kind)
    except UNFIT as unfit:
        raise InvalidEvent(f"a value does not fit the column {table}.{name} ({kind}): {unfit}") from unfit


def calls_table(batches: Sequence[CallBatch]) -> pa.Table:
    """The rows of many batches as one table; the columns stay Arrow, no row is touched."""
    joined = pa.Table.from_batches([batch.rows for batch in batches])
    columns = [
        joined.column(field.name).cast(field.type).unify_dictionaries()
        if pa.types.is_dictionary(field.type)
        else joined.column(field.name)
        for field in schemas.CALL_TABLE
        if field.name not in ("host", "ordinal")
    ]
    lengths = [len(batch) for batch in batches]
    hosts = sorted({batch.host for batch in batches})
    place = {host: code for code, host in enumerate(hosts)}
    codes = np.repeat([place[batch.host] for batch in batches], lengths)
    columns.append(
        pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(hosts))])
    )
    columns.append(pa.chunked_array([np.repeat(np.array([batch.ordinal for batch in batches], np.int64), lengths)]))
    # One chunk: the engine reads a file of many small chunks several times slower.
    return pa.Table.from_arrays(columns, schema=schemas.CALL_TABLE).combine_chunks()


def operations_table(event: Operations) -> pa.Table:
    """The rows of an event as columns; no row is touched."""
    names = words([OPTYPES[code] for code in values_of(event.rows.column("optype")).tolist()])
    same = {"job": event.job, "attempt": event.attempt, "host": event.host}
    columns = [
        pa.repeat(pa.scalar(same[field.name], field.type), len(event))
        if field.name in same
        else names
        if field.name == "optype"
        else event.rows.column(field.name)
        for field in schemas.ROW_TABLES[schemas.OPERATIONS]
    ]
    return pa.Table.from_arrays(columns, schema=schemas.ROW_TABLES[schemas.OPERATIONS])


def _plain(event: Any, table: str) -> Row:
    """The fields of an event that have a column of their name."""
    row: Row = {}
    for name in schemas.ROW_TABLES[table].names:
        value = getattr(event, name, None)
        row[name] = list(value) if isinstance(value, tuple) else value
    return row


def _exact(event: Any) -> Row:
    return {"event": msgspec.json.encode(event).decode()}


def _named(event: Any) -> Row:
    return {"event_id": event.identity()} | _exact(event)


@cache
def sees_names(sees: Sees) -> list[str]:
    """The instants that a source sees, by name; not to be changed."""
    return [str(flag.name).lower() for flag in sees]


def _batch(batch: CallBatch) -> Row:
    seq = batch.integers("seq")
    times_ns = np.maximum(batch.integers("end_ns"), batch.integers("launch_ns"))
    return {
        "job": batch.job,
        "attempt": batch.attempt,
        "host": batch.host,
        "communicator": batch.communicator,
        "source": batch.source,
        "ordinal": batch.ordinal,
        "sees": sees_names(batch.sees),
        "rows": len(batch),
        "dropped": batch.dropped,
        "first_seq": int(seq.min()) if len(batch) else -1,
        "last_seq": int(seq.max()) if len(batch) else -1,
        "time_ns": int(times_ns.max(initial=0)),
        "within_ns": batch.within_ns,
    }


def _process(sample: HostSample, process: ProcessState) -> Row:
    return {
        "job": sample.job,
        "attempt": sample.attempt,
        "host": sample.host,
        "rank": process.rank,
        "pid": process.pid,
        "state": process.state,
        "since_ns": process.since_ns,
        "exit_code": process.exit_code,
        "signal": process.signal,
        "detail": process.detail,
        "closed": sample.closed,
        "closed_why": sample.closed_why,
        "time_ns": sample.time_ns,
    }


def _stack(evidence: HostEvidence, stack: RankStack) -> Row:
    return {
        "job": evidence.job,
        "attempt": evidence.attempt,
        "host": evidence.host,
        "reason": evidence.reason,
        "rank": stack.rank,
        "pid": stack.pid,
        "doing": stack.doing,
        "taken_by": stack.taken_by,
        "frames": list(stack.frames),
        "libraries": list(stack.libraries),
        "kernel_log": list(evidence.kernel_log),
        "time_ns": evidence.time_ns,
    }


def _changepoint(change: Changepoint) -> Row:
    return {
        **_named(change),
        "job": change.job,
        "attempt": change.attempt,
        "series": change.series,
        "at_step": change.at.step,
        "at_ns": change.at.time_ns,
        "detected_step": change.detected.step,
        "before_s": change.before_s,
        "after_s": change.after_s,
        "probability": change.probability,
        "time_ns": change.time_ns,
        "magnitude": change.magnitude,
    }


def _finding(finding: Finding) -> Row:
    row = _plain(finding, schemas.FINDINGS) | _exact(finding)
    row["cause"] = finding.cause or ""
    row["evidence"] = [piece.words for piece in finding.evidence]
    row["links"] = [{"1": source, "2": destination} for source, destination in finding.links]
    for name, instant in (("onset", finding.onset), ("detected", finding.detected), ("relief", finding.relief)):
        row |= _instant(name, instant)
    return row


def _instant(name: str, instant: Instant | None) -> Row:
    return {
        f"{name}_step": instant.step if instant else None,
        f"{name}_ns": instant.time_ns if instant else None,
    }


def _incident(incident: Incident) -> Row:
    return {
        **_plain(incident, schemas.INCIDENTS),
        **_exact(incident),
        "kinds": sorted({finding.kind for finding in incident.findings}),
        "culprits": sorted({rank for finding in incident.findings for rank in finding.culprits}),
        "excess_s": incident.cost.excess_s,
        "ranks": incident.cost.ranks,
        "gpu_hours": incident.cost.gpu_hours,
    }


def _prices(price: WhatIfPrice) -> list[Row]:
    """One row per fix; the window stands in each."""
    window = _plain(price, schemas.PRICES) | {"world_size": price.ranks}
    return [
        {
            **window,
            "what": fix.what,
            "name": fix.name,
            "ranks": list(fix.ranks),
            "step_time_s": fix.step_time_s,
            "gain": fix.gain,
        }
        for fix in price.fixes
    ]


def _dead_letter(letter: DeadLetter) -> Row:
    return {
        **_plain(letter, schemas.DEAD_LETTERS),
        "event_id": letter.identity(),
        "payload_hash": hashlib.blake2b(letter.payload, digest_size=16).hexdigest(),
    }
