"""Two live jobs under one name (a rendezvous id that is used again): told, and the second one kept out of the first.

Nothing in a call says whose it is but job, attempt and rank, and these are the same. What tells them apart are the
processes: a rank of one job is one process, and two that live side by side are two jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import Any

from pacehound.model.events import Finding, HostSample, Instant
from pacehound.model.evidence.life import Over
from pacehound.model.evidence.machines import TwoProcesses
from pacehound.model.identity import event_id
from streams.hang.thresholds import SIDE_BY_SIDE_NS
from streams.watching.moment import Moment
from streams.watching.watch import Said, Watch

_SHOWN = 4


@dataclass(slots=True)
class _Seen:
    host: str
    pid: int
    first_ns: int
    last_ns: int


class SharedName(Watch):
    """Follows which process each rank is."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._seen: dict[int, list[_Seen]] = {}  # by rank, the one that was there first before the others
        self._unchanged_ns: dict[str, int] = {}  # by host, up to when its processes are as its last sample has them
        self._finding: Finding | None = None
        self._several: set[int] = set()  # ranks for which more than one process is known
        self._rank_of: dict[tuple[str, int], int] = {}  # by host and pid

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest; processes in one list, for most ranks have one."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("_several", "_rank_of")}
        counts = list(map(len, self._seen.values()))
        state["_seen"] = list(self._seen), counts, list(chain.from_iterable(self._seen.values()))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Find out again which ranks have several processes, and which each process is (`ValueError`: it cannot be)."""
        self.__dict__.update(state)
        ranks, counts, processes = state["_seen"]
        if sum(counts) != len(processes):
            raise ValueError(f"{len(processes)} processes are those of ranks that have {sum(counts)}")
        each = iter(processes)
        self._seen = {rank: list(islice(each, count)) for rank, count in zip(ranks, counts, strict=True)}
        self._rank_of = {(one.host, one.pid): rank for rank, seen in self._seen.items() for one in seen}
        self._several = {rank for rank, seen in self._seen.items() if len(seen) > 1}

    def of_the_first(self, sample: HostSample) -> HostSample:
        """The processes of one host; without those of ranks that are somebody else's as long as he is alive.

        A process that takes over from another is taken for the rank once the other has exited, or been silent for long.
        """
        foreign: set[int] = set()
        self._note_other_ranks(sample)
        for process in sample.processes:
            known = [seen for seen in self._seen.get(process.rank, ()) if self._is_live(seen, sample.time_ns)]
            mine = next((seen for seen in known if (seen.host, seen.pid) == (sample.host, process.pid)), None)
            if known and known[0] is not mine:
                foreign.add(process.pid)
            if process.state == "exited":
                known = [seen for seen in known if seen is not mine]
            elif mine is None:
                known.append(_Seen(sample.host, process.pid, sample.time_ns, sample.time_ns))
            else:
                mine.last_ns = max(mine.last_ns, sample.time_ns)
            self._seen[process.rank] = known[:_SHOWN]
            if len(known) > 1:
                self._several.add(process.rank)
            else:
                self._several.discard(process.rank)
        if not foreign:
            return sample
        return replace(sample, processes=tuple(one for one in sample.processes if one.pid not in foreign))

    def _note_other_ranks(self, sample: HostSample) -> None:
        """A worker of a pool may be another rank each time: it is none of those that it was.

        Ranks of one number are processes of several containers, which nobody could tell from here.
        """
        times = Counter(process.pid for process in sample.processes)
        for process in sample.processes:
            key = sample.host, process.pid
            before = self._rank_of.get(key)
            if before not in (None, process.rank) and times[process.pid] == 1:
                left = [one for one in self._seen.get(before, ()) if (one.host, one.pid) != key]
                self._seen[before] = left
                if len(left) < 2:
                    self._several.discard(before)
            self._rank_of[key] = process.rank

    def is_unchanged(self, host: str, time_ns: int) -> None:
        """What the last sample of a host has said still holds."""
        self._unchanged_ns[host] = time_ns

    def on_tick(self, moment: Moment) -> list[Said]:
        """A finding when two jobs are seen, and a new version of it when one of them has gone."""
        twice = {
            rank: live
            for rank in sorted(self._several)
            if self._are_side_by_side(live := self._live(rank, moment.now_ns), moment.now_ns)
        }
        if self._finding is not None:
            if twice:
                return []
            told, self._finding = self._finding, None
            return [told.next_version(Over(why="one job of the name"), relief=moment.at)]
        if not twice:
            return []
        onset_ns = min(live[1].first_ns for live in twice.values())
        self._finding = Finding(
            id=event_id("blind", self._job, self._attempt, "shared name", onset_ns),
            job=self._job,
            attempt=self._attempt,
            kind="blind",
            verdict="unknown",
            cause=None,
            candidates=tuple(twice),
            onset=Instant(step=moment.step, time_ns=onset_ns),
            detected=moment.at,
            evidence=tuple(self._two(rank, live, moment.now_ns) for rank, live in list(twice.items())[:_SHOWN]),
            unseen=(
                f"the second job: two that are alive run as {self._job!r}, and the first is the one that is watched; "
                "give the other one a name of its own (--job, or another rendezvous id)",
            ),
        )
        return [self._finding]

    def _last_ns(self, seen: _Seen) -> int:
        return max(seen.last_ns, self._unchanged_ns.get(seen.host, 0))

    def _is_live(self, seen: _Seen, now_ns: int) -> bool:
        return now_ns - self._last_ns(seen) < SIDE_BY_SIDE_NS

    def _live(self, rank: int, now_ns: int) -> list[_Seen]:
        return [one for one in self._seen[rank] if self._is_live(one, now_ns)]

    def _are_side_by_side(self, seen: Iterable[_Seen], now_ns: int) -> bool:
        """Two of them were both seen for long enough."""
        ordered = sorted(seen, key=lambda one: one.first_ns)
        return any(self._both_until_ns((a, b), now_ns) - b.first_ns >= SIDE_BY_SIDE_NS for a, b in pairwise(ordered))

    def _both_until_ns(self, seen: Sequence[_Seen], now_ns: int) -> int:
        """Promises are heard of when they come: what they say of later is not known yet."""
        return min(now_ns, *map(self._last_ns, seen))

    def _two(self, rank: int, live: list[_Seen], now_ns: int) -> TwoProcesses:
        both_alive_s = (self._both_until_ns(live, now_ns) - live[1].first_ns) / 1e9
        processes = tuple((one.pid, one.host) for one in live[:2])
        return TwoProcesses(rank=rank, processes=processes, both_alive_s=both_alive_s)
