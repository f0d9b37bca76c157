"""What a validation found over all that was measured: of each rank and link one verdict, by its worst measurement."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from actuators.validation.judge import Judged, Times, judge_links, judge_ranks
from actuators.validation.passes import Link, ring_passes
from actuators.validation.thresholds import CPU_LINK_SLOW_RATIO, LEAST_PEERS, LINK_SLOW_RATIO
from pacehound.errors import MalformedMessage
from pacehound.model.events.control import JudgedRanks
from pacehound.model.json_documents import UNREADABLE_JSON


class RankMeasured(msgspec.Struct, kw_only=True, frozen=True):
    """What one rank has measured, as its process says it.

    Attributes
    ----------
    machine
        Whose processors and memory it used; hosts that are containers may share one.
    ranks
        Seconds of each repetition, by what was measured.
    links
        By what was measured: who sent, to whom, and the seconds of each repetition.
    cut_short
        The budget was over before all was measured.

    """

    rank: int
    host: str
    machine: str
    device: str
    ranks: dict[str, tuple[float, ...]] = {}
    links: dict[str, tuple[tuple[int, int, tuple[float, ...]], ...]] = {}
    cut_short: bool = False
    started_s: float = 0.0
    measured_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One rank or link that was judged.

    Attributes
    ----------
    ranks
        One, or the two ends of a link.
    hosts
        Theirs.
    measured
        What says most of it: the slowest of a culprit, of one that is cleared whatever took longest.

    """

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    measured: str
    judged: Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All of it; `cut_short` where the budget was over before everything was measured."""

    ranks: tuple[Found, ...]
    links: tuple[Found, ...]
    cut_short: bool
    measured_s: float

    def culprits(self) -> tuple[Found, ...]:
        """Ranks and links that were proven slow, the slowest first."""
        slow = [one for one in (*self.ranks, *self.links) if one.judged.verdict == "culprit"]
        return tuple(sorted(slow, key=lambda one: -one.judged.ratio))


def read_measured(text: bytes) -> list[RankMeasured]:
    """What the ranks' processes have written.

    Raises
    ------
    MalformedMessage
        It is something else.

    """
    try:
        return msgspec.json.decode(text, type=list[RankMeasured])
    except UNREADABLE_JSON as error:
        raise MalformedMessage(f"no measurements: {error}") from error


def outcome_of(measured: Sequence[RankMeasured]) -> Outcome:
    """Judge what was measured.

    Links within one host are not judged where processors move the data: what differs there is the processors' time.
    Nor are the copies of a machine's ranks: the memory is the machine's, and machines are compared.
    """
    hosts = {one.rank: one.host for one in measured}
    machines = {one.rank: one.machine for one in measured}
    is_cpu = any(one.device == "cpu" for one in measured)
    of_ranks: dict[int, list[tuple[str, Judged]]] = {one.rank: [] for one in measured}
    for what in dict.fromkeys(what for one in measured for what in one.ranks):
        times = {one.rank: one.ranks.get(what, ()) for one in measured}
        judge = partial(_judge_memory, machines=machines) if is_cpu and what == "memory" else judge_ranks
        for rank, judged in judge(times).items():
            of_ranks[rank].append((what, judged))
    of_links: dict[Link, list[tuple[str, Judged]]] = {}
    for what in dict.fromkeys(what for one in measured for what in one.links):
        between = {
            (here, there): seconds
            for one in measured
            for here, there, seconds in one.links.get(what, ())
            if not is_cpu or hosts.get(here) != hosts.get(there)
        }
        links, ranks = judge_links(between, CPU_LINK_SLOW_RATIO if is_cpu else LINK_SLOW_RATIO)
        for link, judged in links.items():
            of_links.setdefault(link, []).append((what, judged))
        for rank, judged in ranks.items():
            of_ranks[rank].append((f"all its links' {what}", judged))
    return Outcome(
        ranks=tuple(_worst((rank,), (hosts[rank],), found) for rank, found in sorted(of_ranks.items()) if found),
        links=tuple(
            _worst(link, (hosts.get(link[0], "?"), hosts.get(link[1], "?")), found)
            for link, found in sorted(of_links.items())
        ),
        cut_short=any(one.cut_short for one in measured),
        measured_s=max((one.measured_s for one in measured), default=0.0),
    )


def _judge_memory(times: Mapping[int, Times], machines: Mapping[int, str]) -> dict[int, Judged]:
    """Of every rank what is judged of its machine; nothing where no machine could be named."""
    by_machine: dict[str, list[Times]] = {}
    for rank, of_rank in times.items():
        by_machine.setdefault(machines[rank], []).append(of_rank)
    if len(by_machine) <= LEAST_PEERS:
        return {}
    medians = [tuple(map(statistics.median, zip(*ranks, strict=False))) for ranks in by_machine.values()]
    judged = dict(zip(by_machine, judge_ranks(dict(enumerate(medians))).values(), strict=True))
    return {rank: judged[machines[rank]] for rank in times}


def _worst(ranks: tuple[int, ...], hosts: tuple[str, ...], found: list[tuple[str, Judged]]) -> Found:
    order = {"culprit": 2, "unclear": 1, "cleared": 0}

    def how_bad(one: tuple[str, Judged]) -> tuple[int, float]:
        _, judged = one
        return order[judged.verdict], 0.0 if math.isnan(judged.ratio) else judged.ratio

    measured, judged = max(found, key=how_bad)
    return Found(ranks=ranks, hosts=hosts, measured=measured, judged=judged)


def said_of(judged: Sequence[JudgedRanks]) -> str:
    """What was measured, in a sentence.

    >>> said_of([JudgedRanks(ranks=(1,), hosts=("h",), verdict="culprit", measured="memory", ratio=2.0, reason="")])
    "rank 1 takes 2.00 times its peers' time (memory)"
    """
    slow = sorted((one for one in judged if one.verdict == "culprit"), key=lambda one: -(one.ratio or 0.0))
    if slow:
        return "; ".join(
            f"{'rank' if len(one.ranks) == 1 else 'link'} {'->'.join(map(str, one.ranks))} takes "
            f"{one.ratio or math.nan:.2f} times its peers' time ({one.measured})"
            for one in slow
        )
    cleared = sum(one.verdict == "cleared" for one in judged)
    return f"{cleared} of {len(judged)} ranks and links are as fast as their peers, and none is proven slow"


def judged_of(outcome: Outcome) -> list[JudgedRanks]:
    """Every rank and link, as it travels."""
    return [_judged_ranks(one) for one in (*outcome.ranks, *outcome.links)]


def answer_of(
    judged: Sequence[JudgedRanks],
    *,
    held_s: float | None = None,
    measured_s: float | None = None,
    cut_short: bool = False,
) -> dict[str, Any]:
    """For scripts (DESIGN 10): every rank and link, and those that are slow once more, the slowest first."""
    slow = sorted((one for one in judged if one.verdict == "culprit"), key=lambda one: -(one.ratio or 0.0))
    ranks = [one for one in judged if len(one.ranks) == 1]
    links = [one for one in judged if len(one.ranks) == 2]
    return {
        "held_s": held_s,
        "ranks": [_of_rank(one) for one in ranks],
        "links": [_of_link(one) for one in links],
        "passes": len(ring_passes(len(ranks))) if links else 0,
        "culprits": [_of_rank(one) if len(one.ranks) == 1 else _of_link(one) for one in slow],
        "measured_s": measured_s,
        "cut_short": cut_short,
    }


def _of_rank(one: JudgedRanks) -> dict[str, Any]:
    return {"rank": one.ranks[0], "host": one.hosts[0], **_measurement(one)}


def _of_link(one: JudgedRanks) -> dict[str, Any]:
    return {"pair": list(one.ranks), "hosts": list(one.hosts), **_measurement(one)}


def _measurement(one: JudgedRanks) -> dict[str, Any]:
    return {
        "test": one.measured,
        "value": one.time_s,
        "unit": "s",
        "median": one.peers_s,
        "ratio": one.ratio,
        "verdict": one.verdict,
        "reason": one.reason,
    }


def _judged_ranks(found: Found) -> JudgedRanks:
    judged = found.judged
    return JudgedRanks(
        ranks=found.ranks,
        hosts=found.hosts,
        verdict=judged.verdict,
        measured=found.measured,
        ratio=_rounded(judged.ratio, 3),
        time_s=_rounded(judged.time_s, 9),
        peers_s=_rounded(judged.peers_s, 9),
        reason=judged.reason,
    )


def _rounded(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(value, digits)
