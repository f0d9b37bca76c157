"""What a validation measured while an incident was open, in a sentence below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pacehound.model.events import Incident, Instant
from pacehound.model.evidence.phrases import ranks_words
from pacehound.pages.incidents import when_words

Row = Mapping[str, Any]


def measured_words(incident: Incident, rows: Iterable[Row]) -> str:
    """The last validation of its job while it was open; empty where there was none.

    Parameters
    ----------
    incident
        Any version.
    rows
        Of the store's query `validations`, newest first.

    Examples
    --------
    >>> from pacehound.model.events import Cost
    >>> incident = Incident(id="i", version=1, job="j", attempt=0, time_ns=9, state="open", opened_ns=5, findings=(),
    ...                     cost=Cost())
    >>> row = {"event_id": "v", "job": "j", "attempt": 0, "time_ns": 10**18, "ranks": [2], "hosts": ["h"],
    ...        "verdict": "culprit", "measured": "memory", "reason": "1.50 times the peers' time"}
    >>> measured_words(incident, [row, row | {"ranks": [0], "verdict": "cleared"}])
    "2001-09-09 01:46:40 UTC: rank 2 is slow (memory: 1.50 times the peers' time); rank 0 is as fast as its peers"

    """
    of_it = [row for row in rows if _is_of(row, incident)]
    last = [row for row in of_it if row["event_id"] == of_it[0]["event_id"]]
    if not last:
        return ""
    said = [f"{_whom(row)} is slow ({row['measured']}: {row['reason']})" for row in last if row["verdict"] == "culprit"]
    if unclear := _ranks_of(last, "unclear"):
        said.append(f"of {ranks_words(unclear)} it cannot be told")
    if cleared := _ranks_of(last, "cleared"):
        be, whose = ("is", "its") if len(cleared) == 1 else ("are", "their")
        said.append(f"{ranks_words(cleared)} {be} as fast as {whose} peers")
    return f"{when_words(Instant(step=None, time_ns=last[0]['time_ns']))}: {'; '.join(said)}"


def _ranks_of(rows: Iterable[Row], verdict: str) -> list[int]:
    return [row["ranks"][0] for row in rows if row["verdict"] == verdict and len(row["ranks"]) == 1]


def _is_of(row: Row, incident: Incident) -> bool:
    is_before_its_end = incident.closed_ns is None or row["time_ns"] <= incident.closed_ns
    is_of_its_job = (row["job"], row["attempt"]) == (incident.job, incident.attempt)
    return is_of_its_job and incident.opened_ns <= row["time_ns"] and is_before_its_end


def _whom(row: Row) -> str:
    ranks: Sequence[int] = row["ranks"]
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"the link {ranks[0]} -> {ranks[1]}"
