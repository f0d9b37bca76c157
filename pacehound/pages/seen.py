"""Of what a store can say that nothing was wrong: health only of what was seen, and of all else why it was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pacehound.model.short_job import not_judged
from pacehound.model.sql_text import sql_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a store has of one job, or of all.

    Attributes
    ----------
    jobs, hosts, ranks
        Which have said something; a rank counts once per job and attempt.
    calls, lost_calls
        Collective calls that were stored, and those whose numbers say that they were lost before they could be.
    iterations
        Of jobs; an iteration counts once, however many ranks it had.

    """

    jobs: int
    hosts: int
    ranks: int
    calls: int
    lost_calls: int
    iterations: int


def seen_question(job: str | None) -> str:
    r"""The SQL whose only row is a `Seen`.

    >>> r"job = 'it\'s'" in seen_question("it's")
    True
    """
    of_job = "1" if job is None else f"job = {sql_text(job)}"
    return f"""SELECT
            (SELECT uniqExact(job) FROM host_samples WHERE {of_job}) AS jobs,
            (SELECT uniqExact(host) FROM host_samples WHERE {of_job}) AS hosts,
            (SELECT uniqExact(job, attempt, rank) FROM topology ARRAY JOIN host_ranks AS rank WHERE {of_job}) AS ranks,
            (SELECT toUInt64(sum(rows)) FROM batches WHERE {of_job}) AS calls,
            (SELECT toUInt64(sum(dropped)) FROM batches WHERE {of_job}) AS lost_calls,
            (SELECT uniqExact(job, attempt, step) FROM iterations WHERE {of_job}) AS iterations"""


def not_watched(seen: Seen, job: str | None) -> str:
    """Why nothing can be said of health; empty where something can."""
    whose = f"job {job}" if job else "any job"
    if not (seen.jobs or seen.ranks or seen.calls):
        return f"nothing of {whose} has reached this store"
    if not seen.calls:
        return f"no collective call of {whose} was seen"
    return ""


def words(seen: Seen, job: str | None, problems: Sequence[str], *, has_incidents: bool) -> list[str]:
    """What is said below the incidents, or instead of them.

    >>> seen = Seen(jobs=1, hosts=2, ranks=8, calls=1200, lost_calls=0, iterations=50)
    >>> words(seen, "a", [], has_incidents=False)
    ['no incident in what was seen of job a: 1,200 calls of 8 ranks on 2 hosts, 50 iterations']
    >>> words(seen, None, ["store waits: no space left on device"], has_incidents=False)[0]
    '1,200 calls of 8 ranks on 2 hosts, 50 iterations were seen; what was not stored may hold incidents'
    """
    lines = []
    what = ", ".join(
        (
            f"{_count(seen.calls, 'call')} of {_count(seen.ranks, 'rank')} on {_count(seen.hosts, 'host')}",
            _count(seen.iterations, "iteration"),
        )
    )
    if reason := not_watched(seen, job):
        lines.append(f"not watched: {reason}")
    elif problems:
        lines.append(f"{what} were seen; what was not stored may hold incidents")
    elif not has_incidents:
        lines.append(f"no incident in what was seen{f' of job {job}' if job else ''}: {what}")
        if seen.jobs == 1 and (unjudged := not_judged(seen.iterations)):
            lines.append(unjudged)
    if seen.lost_calls:
        lines.append(f"lost before they could be read or sent: {_count(seen.lost_calls, 'call')}")
    return [*lines, *(f"the head says: {problem}" for problem in problems)]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
