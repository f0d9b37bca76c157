"""Every number of this room that decides a verdict: its unit, and why it is what it is (derived, or chosen)."""

MIN_ITERATIONS = 10
"""A call is never suspected before this many iterations' time; a job with fewer has yet to find its pace (chosen)."""

SETUP_FACTOR = 4
"""In the first iterations (loading, compiling, lazy imports) everything may take this many times longer (chosen)."""

SURVIVED_FACTOR = 2.0
"""A stall that ended by itself and that nobody caused is part of this job: the next one may last so much longer
(chosen)."""

STANDSTILL_S = 2.0
"""From this age on, calls that do not move are looked at, though it is too early to say anything of them (derived:
hosts speak once a second, so that every host has spoken since)."""

CURRENT_NS = 10_000_000_000
"""A report so old does not say where a rank stands now (derived: where anything takes long hosts say it each 2.5 s at
least, and each four while no iteration is known; those that are silent for five are asked about nothing)."""

MISMATCH_MATTERS_NS = 60_000_000_000
"""Calls that did not match so long before somebody left, and did no harm since, did not make it leave (chosen)."""

SETTLE_NS = 2_000_000_000
"""After a first exit the others are watched for this long before it is said who it was (derived: hosts speak once a
second, and at once when a process changes)."""

TOGETHER_NS = 50_000_000
"""Exits on one host that are so close to each other cannot be put in order (derived: its agent looks this often)."""

TOGETHER_ELSEWHERE_NS = 250_000_000
"""And on another host, whose clock comes to it (chosen)."""

MIN_LACK = 0.5
"""A rank that lacks no more than this share of the launches that the slowest one lacks was stopped by that one (chosen,
on the suite `root_cause`: of 60 jobs with stuck ranks four had others that lack half as many, and one a stuck one)."""

SIDE_BY_SIDE_NS = 10_000_000_000
"""So long two processes of one rank must both have been seen: one that takes over from another, on a host whose clock
differs by seconds, is no second job. And who has been silent for so long is gone (chosen)."""

REPORT_AFTER_NS = 10_000_000_000
"""Silence beyond the usual lateness that is worth a word (chosen: an agent that is started anew is back before)."""

MIN_TO_PASS = 2
"""Chunks that a host must have to pass up a tree (derived: one may have been counted as received, and not yet as
sent)."""

MOST_TOLD = 4
"""Ranks that are told of one by one where many were killed together (chosen: a line each, on one page)."""
