"""The jobs of a store, and the one that it has heard of last: what is asked about where none is named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pacehound.model.sql_text import sql_text

if TYPE_CHECKING:
    from pacehound.cli.history import History

_MOST_JOBS = 10_000
_PLACES = re.compile(r"\{\s*(job|attempt)\s*:\s*(String|U?Int\d+)\s*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """A job of a store: its last attempt, how many incidents it has had, and whether its ranks are GPUs."""

    job: str
    attempt: int
    incidents: int = 0
    is_on_gpus: bool = False


def known_jobs(answers: History, named: str | None = None) -> list[KnownJob]:
    """Those of a store, or the one that is named; the one of which something was heard last comes first."""
    found: dict[str, KnownJob] = {}
    for row in answers.ask("page/jobs", {"job": named or "", "most": _MOST_JOBS}).to_pylist():
        before = found.get(row["job"])
        found[row["job"]] = KnownJob(
            job=row["job"],
            attempt=max(row["attempt"], before.attempt if before else 0),
            incidents=row["incidents"] + (before.incidents if before else 0),
            is_on_gpus=bool(row["is_on_gpus"]) or (before is not None and before.is_on_gpus),
        )
    return list(found.values())


def names_a_job(statement: str) -> bool:
    """Whether a statement has a place for a job or an attempt.

    >>> names_a_job("SELECT * FROM iterations WHERE job = {job:String}"), names_a_job("SELECT 1")
    (True, False)
    """
    return _PLACES.search(statement) is not None


def filled(statement: str, job: KnownJob) -> str:
    r"""The statement with a job, as text, and its attempt in their places.

    >>> filled("SELECT 1 WHERE job = {job:String} AND attempt = {attempt:UInt32}", KnownJob(job="it's", attempt=2))
    "SELECT 1 WHERE job = 'it\\'s' AND attempt = 2"
    """
    return _PLACES.sub(lambda found: sql_text(job.job) if found[1] == "job" else str(job.attempt), statement)
