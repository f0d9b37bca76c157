"""What a validation found over all that was measured: of each rank and link one verdict, by its worst measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from actuators.validation.judge import Judged, judge_links, judge_ranks
from actuators.validation.passes import Link
from actuators.validation.thresholds import CPU_LINK_SLOW_RATIO, LINK_SLOW_RATIO, SLOW_RATIO
from pacehound.errors import MalformedMessage
from pacehound.model.json_documents import UNREADABLE_JSON


class RankMeasured(msgspec.Struct, kw_only=True, frozen=True):
    """What one rank has measured, as its process says it.

    Attributes
    ----------
    ranks
        Seconds of each repetition, by what was measured.
    links
        By what was measured: who sent, to whom, and the seconds of each repetition.
    cut_short
        The budget was over before all was measured.

    """

    rank: int
    host: str
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
    """
    hosts = {one.rank: one.host for one in measured}
    is_cpu = any(one.device == "cpu" for one in measured)
    of_ranks: dict[int, list[tuple[str, Judged]]] = {one.rank: [] for one in measured}
    for what in dict.fromkeys(what for one in measured for what in one.ranks):
        times = {one.rank: one.ranks.get(what, ()) for one in measured}
        for rank, judged in judge_ranks(times, SLOW_RATIO).items():
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


def _worst(ranks: tuple[int, ...], hosts: tuple[str, ...], found: list[tuple[str, Judged]]) -> Found:
    order = {"culprit": 2, "unclear": 1, "cleared": 0}

    def how_bad(one: tuple[str, Judged]) -> tuple[int, float]:
        _, judged = one
        return order[judged.verdict], 0.0 if math.isnan(judged.ratio) else judged.ratio

    measured, judged = max(found, key=how_bad)
    return Found(ranks=ranks, hosts=hosts, measured=measured, judged=judged)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """For scripts."""

    def plain(found: Found) -> dict[str, Any]:
        judged = found.judged
        return {
            "ranks": list(found.ranks),
            "hosts": list(found.hosts),
            "verdict": judged.verdict,
            "measured": found.measured,
            "ratio": None if math.isnan(judged.ratio) else round(judged.ratio, 3),
            "reason": judged.reason,
        }

    return {
        "culprits": [plain(one) for one in outcome.culprits()],
        "ranks": [plain(one) for one in outcome.ranks],
        "links": [plain(one) for one in outcome.links],
        "cut_short": outcome.cut_short,
        "measured_s": round(outcome.measured_s, 3),
    }
