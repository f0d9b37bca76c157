"""Jobs with one cause each, and beforehand, per source, whether that cause must be named and by which word.

A mark follows from what the source can know (DESIGN sections 4 to 6); each carries its reason as a sentence. What must
not be named is right as `unknown` or `suspected`; an innocent is a culprit nowhere.

>>> case = next(cases("device times", 1))
>>> case.name, case.spec.layout.world_size >= 16
('clean', True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from pacehound.model.calls import Sees
from pacehound.model.events import Cause, StackState, VerdictWord
from pacehound.model.topology import Layout, ring_edges
from pacehound.model.truth.causes import CauseTruth
from simulator.faults import (
    DeadDevice,
    Fault,
    HiddenLateness,
    RandomPauses,
    SilentHost,
    SlowCompute,
    SlowLink,
    StopRank,
    StuckRanks,
    SymmetricHang,
    WrongCall,
    WrongKind,
)
from simulator.links import tree_edges
from simulator.members import groups_of
from simulator.network_view import is_network
from simulator.program import CommunicatorKind, build
from simulator.source import (
    C10D_GLOO,
    COUNTS_ONLY,
    DEVICE_TIMES,
    FLIGHT_RECORDER,
    GRAPH_REPLAY,
    LAUNCH_ONLY,
    UNSEEN_EP,
    UNSEEN_TP,
    Source,
)
from simulator.spec import JobSpec

SUSPECT_AFTER_S = 3.0
"""`hang.suspect_after_s` for these jobs: they hang for `HANG_S` and no longer, to be simulated quickly."""
HANG_S = 12.0
LARGE_HANG_S = 20.0
"""Ten iterations must fit in after a dump, too, before a hang is one: at 4,096 ranks they take four seconds."""

STEPS_BEFORE_HANG = (18, 26)
STEPS_BEFORE = (34, 40)
"""A job is quiet for so many steps; slowness then lasts for `STEPS_SLOW`: so many make a level, not a spell."""
STEPS_SLOW = 36
OFFSET_MS = 50.0
DROPPED = 0.05

_LAYOUTS = (
    Layout(dp=16),
    Layout(dp=8, pp=2),
    Layout(tp=2, dp=4, pp=2),
    Layout(tp=2, dp=8),
    Layout(tp=4, dp=2, pp=2),
    Layout(tp=4, dp=4, pp=2),
    Layout(tp=8, dp=4),
    Layout(tp=8, dp=2, pp=2),
    Layout(tp=2, dp=8, pp=4),
    Layout(tp=4, dp=4, pp=4),
    Layout(tp=4, dp=8, pp=2),
    Layout(tp=8, dp=8),
    Layout(tp=8, dp=4, pp=2),
)
_LARGE = (Layout(tp=8, dp=64, pp=8), Layout(tp=4, dp=128, pp=8), Layout(tp=8, dp=128, pp=4))

_NAMED: frozenset[VerdictWord] = frozenset({"culprit", "suspected"})
_SURELY: frozenset[VerdictWord] = frozenset({"culprit"})
_PERHAPS: frozenset[VerdictWord] = frozenset({"suspected"})
_NOBODY: frozenset[VerdictWord] = frozenset({"unknown", "suspected"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCauseCase:
    """One job and what must, and must not, be said of it."""

    name: str
    source: str  # the row of the scoreboard it counts in
    seed: int
    spec: JobSpec
    truth: CauseTruth  # what was injected, and whether the source shows enough to name it
    why: str  # the reason of that mark


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    must_name: bool
    words: frozenset[VerdictWord]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Injected:
    """What a scenario puts into a job."""

    faults: tuple[Fault, ...] = ()
    cause: Cause | None = None
    culprits: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    mark: _Mark


def _must(words: frozenset[VerdictWord], why: str) -> _Mark:
    return _Mark(must_name=True, words=words, why=why)


def _may(why: str, words: frozenset[VerdictWord] = _NOBODY) -> _Mark:
    return _Mark(must_name=False, words=words, why=why)


@dataclass(frozen=True, slots=True)
class _Draw:
    """What a scenario may choose with, and from."""

    rng: np.random.Generator
    base: JobSpec
    has_drops: bool

    @property
    def source(self) -> Source:
        return self.base.source

    @property
    def layout(self) -> Layout:
        return self.base.layout

    @property
    def step(self) -> int:
        return self.base.iterations

    def chance(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def ranks(self, most: int = 3) -> tuple[int, ...]:
        n = int(self.rng.integers(1, most + 1))
        return tuple(sorted(self.rng.choice(self.layout.world_size, n, replace=False).tolist()))

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    @property
    def has_times(self) -> bool:
        return Sees.START in self.source.sees and self.source.rows == "all"

    @property
    def has_agent(self) -> bool:
        return not self.source.dumps

    @property
    def sees_open(self) -> bool:
        return self.source.counts_completed

    def is_seen(self, kind: CommunicatorKind) -> bool:
        """Calls on these communicators are seen, every one of them."""
        return kind not in self.source.replayed and kind not in self.source.unseen

    def hides_peers(self) -> bool:
        """Ranks wait for each other in calls that nobody sees: who is late, and who waits for it, look alike."""
        sizes: dict[CommunicatorKind, int] = {"tp": self.layout.tp, "ep": self.base.ep}
        return any(size > 1 and not self.is_seen(kind) for kind, size in sizes.items())

    def launches_whole_steps(self) -> bool:
        """Hosts run so far ahead that whoever is not held launches all calls of the step."""
        programs, _ = build(self.layout, self.base.work)
        return max(len(program.slots) for program in programs) <= self.source.run_ahead_calls


Scenario = Callable[[_Draw], _Injected | None]
"""Puts something into a job, or says that this layout has no place for it."""


# Nobody to name


def _clean(draw: _Draw) -> _Injected:
    return _Injected(mark=_may("nothing was put in"))


def _pauses(draw: _Draw) -> _Injected:
    step_s = 3 * draw.base.forward_s * draw.base.micro_batches
    pauses = RandomPauses(probability=2.0 / draw.layout.world_size, extra_s=step_s, from_step=draw.step)
    return _Injected(faults=(pauses,), mark=_may("the delay wanders over all ranks: no rank explains half of it"))


def _hidden_lateness(draw: _Draw) -> _Injected | None:
    if draw.layout.tp > 1 or not draw.base.overlaps:
        return None  # tensor-parallel peers would wait for it within the pass
    late = HiddenLateness(rank=draw.ranks(1)[0], share=0.6, from_step=draw.step)
    return _Injected(
        faults=(late,),
        changes={"tp_calls": 4},
        mark=_may("a late arrival that computation hides costs nothing and is charged nothing"),
    )


def _symmetric(draw: _Draw) -> _Injected | None:
    sizes: dict[CommunicatorKind, int] = {"dp": draw.layout.dp, "tp": draw.layout.tp}
    kinds = [kind for kind, size in sizes.items() if size > 2]
    if not kinds:
        return None  # in a pair, a collective that both entered and neither left points at their link
    kind = draw.one(kinds)
    hang = SymmetricHang(
        kind=kind, group=int(draw.rng.integers(len(groups_of(draw.base).members[kind]))), step=draw.step
    )
    return _Injected(faults=(hang,), cause="H3", mark=_may("all have entered and all are as far: nobody stands apart"))


def _silent_agent(draw: _Draw) -> _Injected:
    host = int(draw.rng.integers(len(draw.base.hosts)))
    silent = SilentHost(host=host, step=draw.step, is_gone=False)
    return _Injected(faults=(silent,), mark=_may("the agent is gone and the job goes on: silence is no hang"))


def _gone_host(draw: _Draw) -> _Injected:
    host = int(draw.rng.integers(len(draw.base.hosts)))
    gone = SilentHost(host=host, step=draw.step, is_gone=True)
    return _Injected(
        faults=(gone,),
        cause="H1",
        culprits=draw.base.hosts[host],
        mark=_may("nobody on that host can say what its ranks do: they may be suspected, or nobody"),
    )


# Slow


def _slow_compute(draw: _Draw) -> _Injected:
    ranks = draw.ranks()
    slow = SlowCompute(ranks=ranks, factor=_factor(draw, 1.6, 2.5), from_step=draw.step)
    if not draw.has_times:
        mark = _may("no device start and end: neither arrivals nor transfers are seen, so no S1 to S3")
    elif draw.hides_peers():
        mark = _may("its peers wait for it in calls that are not seen, and come as late as it does")
    else:
        mark = _must(_NAMED, "its own time grows while everybody else waits for it, and starts and ends are seen")
    has_vitals = draw.chance() and draw.source.run_ahead_calls > 0  # a rank on gloo has no GPU that could be hot
    return _Injected(faults=(slow,), cause="S1", culprits=ranks, changes={"has_vitals": has_vitals}, mark=mark)


def _factor(draw: _Draw, low: float, high: float) -> float:
    """How much longer a slow rank computes, for the iteration to grow by more than the tenth that counts as slow.

    With more stages than micro-batches, bubbles hide that share of a stage's delay.
    """
    hidden = max(1.0, draw.layout.pp / draw.base.micro_batches)
    return 1.0 + (float(draw.rng.uniform(low, high)) - 1.0) * hidden


def _link_mark(draw: _Draw, link: tuple[int, int], kind: CommunicatorKind, size: int) -> _Mark:
    """Whether a slow link can be told from the other ones of its communicator."""
    if not draw.has_times:
        return _may("no device start and end: neither arrivals nor transfers are seen, so no S1 to S3")
    if not draw.is_seen(kind):
        return _may("the calls that use the link are not seen")
    if kind == "pp" or size == 2:
        if draw.hides_peers():
            return _may("the pair's late arrivals cannot be told from its transfers where others are not seen")
        return _must(_NAMED, "only two ranks use it together: the transfer's time is the link's")
    if draw.source.has_rates and is_network(draw.base, *link):
        return _must(_NAMED, "its sender's rate is the lowest, and it crosses hosts, where rates are seen")
    if draw.source.has_rates:
        return _may("it is an NVLink: nobody sees its rate, and the rates of other edges say nothing of it")
    return _may("which edge of the communicator is slow: no rates are seen")


def _slow_link(draw: _Draw, link: tuple[int, int], kind: CommunicatorKind, extra_s: float) -> SlowLink:
    """A link whose transfers take so much longer per iteration."""
    base, layout = draw.base, draw.layout
    bytes_per_s = base.network.bytes_per_s(*link)
    if kind == "pp":
        sent, times = base.pp_bytes, base.micro_batches  # the other direction's transfers are hidden by these
    elif kind == "tp":
        sent, times = 2 * base.tp_bytes * (layout.tp - 1) // layout.tp, 2 * base.micro_batches * base.tp_calls
    else:
        turns = 2.0 if base.algorithm == "tree" else 2.0 * (layout.dp - 1) / layout.dp
        sent, times = round(turns * base.dp_bytes), 1
    quick_s = times * sent / bytes_per_s
    return SlowLink(link=link, bandwidth_factor=quick_s / (quick_s + extra_s), from_step=draw.step)


def _extra_s(draw: _Draw) -> float:
    """About the time of an iteration: some of it hides in a pipeline's bubbles, or behind computation."""
    return _compute_s(draw) * float(draw.rng.uniform(0.8, 1.6))


def _compute_s(draw: _Draw) -> float:
    """What an iteration computes, the pipeline's warm-up included."""
    base = draw.base
    forward_s = base.forward_s + (base.expert_s if base.ep > 1 else 0.0)
    return 3 * forward_s * (base.micro_batches + base.layout.pp - 1)


def _slow_pair(draw: _Draw) -> _Injected | None:
    if draw.layout.pp == 1:
        return None
    tp, dp, pp = draw.layout.position(draw.one(range(draw.layout.world_size - draw.layout.tp * draw.layout.dp)))
    link = (draw.layout.rank(tp, dp, pp), draw.layout.rank(tp, dp, pp + 1))
    fault = _slow_link(draw, link, "pp", _extra_s(draw))
    return _Injected(faults=(fault,), cause="S2", links=(link,), mark=_link_mark(draw, link, "pp", 2))


def _dp_ring_edges(draw: _Draw) -> list[tuple[int, int]]:
    return [edge for group in draw.layout.groups("dp") for edge in ring_edges(group)]


def _slow_ring(draw: _Draw) -> _Injected | None:
    if draw.layout.dp < 2:
        return None
    link = draw.one(_dp_ring_edges(draw))
    fault = _slow_link(draw, link, "dp", _extra_s(draw))
    return _Injected(faults=(fault,), cause="S2", links=(link,), mark=_link_mark(draw, link, "dp", draw.layout.dp))


def _tree_links(draw: _Draw) -> list[tuple[int, int]]:
    """Links between hosts whose child has another rank of its layer with as many children and connections."""
    found = []
    for group in draw.layout.groups("dp"):
        place = {rank: i for i, rank in enumerate(group)}
        roles: dict[tuple[int, int, int], list[int]] = {}
        for rank in group:
            neighbours = [b for edge in tree_edges(group) for b in edge if rank in edge and b != rank]
            n_network = sum(is_network(draw.base, rank, other) for other in neighbours)
            layer = (place[rank] + 1).bit_length()
            roles.setdefault((layer, len(neighbours), n_network), []).append(rank)
        alike = {rank for ranks in roles.values() if len(ranks) > 1 for rank in ranks}
        found += [edge for edge in tree_edges(group) if edge[0] in alike and is_network(draw.base, *edge)]
    return found


def _slow_tree(draw: _Draw) -> _Injected | None:
    links = _tree_links(draw)
    if not links or draw.base.is_sharded:
        return None
    draw = replace(draw, base=replace(draw.base, algorithm="tree"))
    link = draw.one(links)
    fault = _slow_link(draw, link, "dp", _extra_s(draw))
    return _Injected(
        faults=(fault,),
        cause="S2",
        links=(link,),
        changes={"algorithm": "tree"},
        mark=_link_mark(draw, link, "dp", draw.layout.dp),
    )


def _slow_nvlink(draw: _Draw) -> _Injected | None:
    if draw.layout.tp < 2:
        return None
    link = draw.one([edge for group in draw.layout.groups("tp") for edge in ring_edges(group)])
    fault = _slow_link(draw, link, "tp", _extra_s(draw))
    return _Injected(faults=(fault,), cause="S2", links=(link,), mark=_link_mark(draw, link, "tp", draw.layout.tp))


def _slow_both(draw: _Draw) -> _Injected | None:
    links = [edge for edge in _dp_ring_edges(draw) if is_network(draw.base, *edge)]
    if not links or draw.base.overlaps:
        return None
    link = draw.one(links)
    factor = _factor(draw, 1.8, 2.2)
    faults = (
        SlowCompute(ranks=(link[0],), factor=factor, from_step=draw.step),
        _slow_link(draw, link, "dp", (factor - 1.0) * _compute_s(draw)),
    )
    mark = _link_mark(draw, link, "dp", draw.layout.dp)
    if mark.must_name and draw.hides_peers():
        mark = _may("the link is seen; the rank's peers wait for it in calls that are not, and come as late as it does")
    return _Injected(faults=faults, cause="S3", culprits=(link[0],), links=(link,), mark=mark)


# Hung


def _stopped(draw: _Draw) -> _Injected:
    if draw.chance():
        ranks = draw.ranks(1)
        faults: tuple[Fault, ...] = (StopRank(rank=ranks[0], step=draw.step),)
    else:
        ranks = draw.ranks()
        faults = (StuckRanks(ranks=ranks, step=draw.step, doing="stopped"),)
    if not draw.has_agent:
        mark = _must(_PERHAPS, "it writes no dump and its peers' dumps wait for it; nobody saw its process")
    elif draw.has_drops or not draw.sees_open or draw.hides_peers():
        mark = _must(_NAMED, "its process is stopped while the job stands; what is lost or unseen may weaken the word")
    else:
        mark = _must(_SURELY, "its peers wait in a call that it has not entered, and its process is stopped")
    return _Injected(faults=faults, cause="H1", culprits=ranks, mark=mark)


def _stuck(draw: _Draw) -> _Injected:
    ranks = draw.ranks()
    doing: StackState = draw.one(("data_loading", "lock", "storage"))
    has_stacks = draw.chance() and draw.has_agent
    fault = StuckRanks(ranks=ranks, step=draw.step, doing=doing)
    if has_stacks and draw.hides_peers() and doing == "lock":
        mark = _may("whoever holds the lock may wait in one of the calls that are not seen")
    elif has_stacks and draw.hides_peers():
        mark = _must(
            _NAMED, "its stack is outside any call; that there are calls which are not seen may weaken the word"
        )
    elif has_stacks:
        # Whoever holds a lock may be a thread that waits in a call.
        words = _NAMED if doing == "lock" or draw.has_drops or not draw.sees_open else _SURELY
        mark = _must(
            words, "it has not entered the call its peers wait in, and its stack is outside any wait for a call"
        )
    elif draw.hides_peers():
        mark = _may("it, and who waits for it in calls that are not seen, have not entered")
    elif draw.sees_open:
        mark = _must(_PERHAPS, "it has not entered; its process runs, and may be in a library that cannot be seen")
    elif draw.launches_whole_steps():
        mark = _must(_PERHAPS, "every other host has launched the whole step: it alone has launched less")
    else:
        mark = _may("others have launched less than their peers, too: their hosts run ahead by so many calls alone")
    return _Injected(faults=(fault,), cause="H1", culprits=ranks, changes={"has_stacks": has_stacks}, mark=mark)


def _wrong_call(draw: _Draw) -> _Injected | None:
    what: WrongKind = draw.one(get_args(WrongKind))
    sizes: dict[CommunicatorKind, int] = {"tp": draw.layout.tp, "dp": draw.layout.dp}
    kinds = [kind for kind, size in sizes.items() if size > 1 and draw.is_seen(kind)]
    if not kinds:
        return None
    kind: CommunicatorKind = draw.one(kinds)
    (rank,) = draw.ranks(1)
    fault = WrongCall(rank=rank, step=draw.step, what=what, kind=kind)
    has_rows = draw.source.rows == "all"
    if what in ("op", "larger", "smaller"):
        if not draw.sees_open and (not has_rows or draw.has_drops):
            mark = _may("no signature of the call is seen, or its row may be the one that was lost")
        elif has_rows:
            mark = _must(_NAMED, "its call differs from its peers', and from its own in earlier iterations")
        elif sizes[kind] > 2:
            mark = _must(_NAMED, "its open call differs from that of all its peers")
        else:
            mark = _may("two open calls differ, and nothing says which of them is the wrong one")
    elif draw.sees_open and has_rows and not draw.hides_peers():
        mark = _must(
            _NAMED, "its peers wait for it while it waits for them, and it departs from its earlier iterations"
        )
    else:
        mark = _may("a cycle of waits needs open calls and the order of earlier iterations to say who left it")
    return _Injected(faults=(fault,), cause="H2", culprits=(rank,), mark=mark)


def _dead_link(draw: _Draw) -> _Injected | None:
    where: str = draw.one(("pp", "dp", "dp", "tree", "tp"))
    kind: CommunicatorKind
    layout = draw.layout
    changes: dict[str, Any] = {}
    if where == "pp" and layout.pp > 1:
        tp, dp, pp = layout.position(draw.one(range(layout.world_size - layout.tp * layout.dp)))
        kind, link, size = "pp", (layout.rank(tp, dp, pp), layout.rank(tp, dp, pp + 1)), 2
    elif where == "dp" and layout.dp > 1:
        kind, link, size = "dp", draw.one(_dp_ring_edges(draw)), layout.dp
    elif where == "tree" and (links := _tree_links(draw)) and not draw.base.is_sharded:
        kind, link, size = "dp", draw.one(links), layout.dp
        changes["algorithm"] = "tree"
    elif where == "tp" and layout.tp > 1:
        kind, link, size = (
            "tp",
            draw.one([edge for group in layout.groups("tp") for edge in ring_edges(group)]),
            layout.tp,
        )
    else:
        return None
    if not draw.sees_open:
        mark = _may("launches alone: who entered is known, not who finished")
    elif not draw.is_seen(kind):
        mark = _may("the calls that use the link are not seen")
    elif size == 2:
        mark = _must(_NAMED, "both have entered, neither gets out, and only their link is between them")
    elif draw.source.has_rates and is_network(draw.base, *link):
        mark = _must(_NAMED, "all have entered; its sender has sent the fewest chunks and its receiver got the fewest")
    elif draw.source.has_rates:
        mark = _may("an NVLink: its chunks are not counted, and an edge between hosts is not the fewest for that")
    else:
        mark = _may("all have entered and none gets out: without counts nobody stands apart")
    if mark.must_name and draw.hides_peers() and kind == "pp":
        mark = _may("both wait for each other, or for peers in calls that are not seen")
    dead = SlowLink(link=link, bandwidth_factor=0.0, from_step=draw.step)
    return _Injected(faults=(dead,), cause="H3", links=(link,), changes=changes, mark=mark)


def _dead_device(draw: _Draw) -> _Injected | None:
    if draw.source.run_ahead_calls == 0:
        return None  # on gloo the host is the device
    sizes: dict[CommunicatorKind, int] = {"tp": draw.layout.tp, "dp": draw.layout.dp}
    kinds = [kind for kind, size in sizes.items() if size > 1]
    if not kinds:
        return None
    kind: CommunicatorKind = draw.one(kinds)
    (rank,) = draw.ranks(1)
    has_vitals = draw.chance() and draw.has_agent
    if draw.sees_open and draw.is_seen(kind):
        mark = _must(_NAMED, "its oldest open call is one that all its peers have completed")
    elif has_vitals:
        mark = _must(_NAMED, "the job stands and its device has an XID")
    else:
        mark = _may("its host goes on launching, and nobody sees what its device completes")
    return _Injected(
        faults=(DeadDevice(rank=rank, step=draw.step, kind=kind),),
        cause="H3",
        culprits=(rank,),
        changes={"has_vitals": has_vitals},
        mark=mark,
    )


SCENARIOS: Mapping[str, Scenario] = {
    "clean": _clean,
    "slow computation": _slow_compute,
    "stopped": _stopped,
    "slow ring edge": _slow_ring,
    "wrong call": _wrong_call,
    "stuck": _stuck,
    "slow pair": _slow_pair,
    "dead link": _dead_link,
    "dead device": _dead_device,
    "slow both": _slow_both,
    "symmetric hang": _symmetric,
    "pauses": _pauses,
    "slow tree edge": _slow_tree,
    "slow NVLink": _slow_nvlink,
    "silent agent": _silent_agent,
    "gone host": _gone_host,
    "hidden lateness": _hidden_lateness,
}
"""By name; a seed takes the next one, so that every class comes up equally often."""

_SLOW = ("slow computation", "slow ring edge", "slow pair", "slow both", "slow tree edge", "slow NVLink")
_ONGOING = ("clean", "pauses", "silent agent", "hidden lateness")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row of the scoreboard: a source, the jobs it is asked about, and what befalls them."""

    source: Source
    changes: Mapping[str, Any] = field(default_factory=dict)
    needs: Callable[[Layout], bool] = lambda layout: True


def _has_experts(layout: Layout) -> bool:
    return layout.dp % 4 == 0


SOURCES: Mapping[str, _Row] = {
    "c10d hooks, gloo": _Row(source=C10D_GLOO),
    "launch only": _Row(source=LAUNCH_ONLY),
    "device times": _Row(source=DEVICE_TIMES),
    "Flight Recorder": _Row(source=FLIGHT_RECORDER),
    "counts only": _Row(source=COUNTS_ONLY),
    "graph replay": _Row(source=GRAPH_REPLAY, needs=lambda layout: layout.tp > 1),
    "unseen library, tp": _Row(source=UNSEEN_TP, needs=lambda layout: layout.tp > 1),
    "unseen library, ep": _Row(source=UNSEEN_EP, changes={"ep": 4}, needs=_has_experts),
    "overlap": _Row(source=DEVICE_TIMES, changes={"overlaps": True}, needs=lambda layout: layout.dp > 1),
    "MoE": _Row(source=DEVICE_TIMES, changes={"ep": 4}, needs=_has_experts),
}
"""The rows of the scoreboard, by name."""


def cases(source: str, n: int, *, first_seed: int = 0) -> Iterator[RootCauseCase]:
    """The cases of `n` seeds of one row, at up to 64 ranks; a seed always gives the same one.

    Raises
    ------
    ValueError
        There is no such row.
    """
    if source not in SOURCES:
        raise ValueError(f"there is no source {source!r}; there are {', '.join(SOURCES)}")
    for seed in range(first_seed, first_seed + n):
        yield case_of(source, seed)


def case_of(source: str, seed: int, layouts: Sequence[Layout] = _LAYOUTS) -> RootCauseCase:
    """The case of one seed. Scenarios take turns; where a layout has no place for one, another layout is drawn."""
    row = SOURCES[source]
    names = list(SCENARIOS)
    fitting = [layout for layout in layouts if row.needs(layout)]
    for attempt in range(200):
        name = names[(seed + attempt // 20) % len(names)]
        # By the row's place: a string's hash differs between runs.
        rng = np.random.default_rng([seed, attempt, list(SOURCES).index(source)])
        layout = fitting[int(rng.integers(len(fitting)))]
        has_drops, has_offsets = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
        is_ongoing = name in _SLOW or name in _ONGOING
        base = _base(row, layout, seed, rng, STEPS_BEFORE if is_ongoing else STEPS_BEFORE_HANG)
        injected = SCENARIOS[name](_Draw(rng, base, has_drops))
        if injected is None:
            continue
        offsets = rng.uniform(-OFFSET_MS, OFFSET_MS, len(base.hosts)) if has_offsets else ()
        spec = replace(
            base,
            iterations=base.iterations + (STEPS_SLOW if is_ongoing else 1),
            faults=injected.faults,
            clock_offsets_ms=tuple(float(offset) for offset in offsets),
            dropped_fraction=DROPPED if has_drops else 0.0,
            **injected.changes,
        )
        return RootCauseCase(
            name=name,
            source=source,
            seed=seed,
            spec=spec,
            truth=CauseTruth(
                cause=injected.cause,
                culprits=injected.culprits,
                links=injected.links,
                words=injected.mark.words,
                must_name=injected.mark.must_name,
            ),
            why=injected.mark.why,
        )
    raise ValueError(f"no layout has a place for {names[seed % len(names)]!r} in the row {source!r}")


def large_cases() -> Iterator[RootCauseCase]:
    """Ten cases at 4,096 ranks: every class, by sources that show enough to name it, and two with nobody to name."""
    names = list(SCENARIOS)
    for index, (source, name) in enumerate(_AT_4096):
        # Far from the seeds of small cases; of each, the first one with the mark that is wanted.
        first = (100_000 + 100 * index) * len(names) + names.index(name)
        seeds = range(first, first + 100 * len(names), len(names))
        drawn = (case_of(source, seed, _LARGE) for seed in seeds)
        case = next(case for case in drawn if case.truth.must_name == (name not in _NOBODYS))
        yield replace(case, spec=replace(case.spec, hang_s=LARGE_HANG_S))


_NOBODYS = ("symmetric hang", "pauses")
_AT_4096 = (
    ("device times", "slow computation"),
    ("device times", "slow ring edge"),
    ("device times", "slow both"),
    ("device times", "stopped"),
    ("device times", "wrong call"),
    ("device times", "dead link"),
    ("Flight Recorder", "dead device"),
    ("counts only", "stuck"),
    ("device times", "symmetric hang"),
    ("MoE", "pauses"),
)


def _base(row: _Row, layout: Layout, seed: int, rng: np.random.Generator, before: tuple[int, int]) -> JobSpec:
    """A healthy job that has been quiet up to `iterations`, where a scenario begins."""
    return JobSpec(
        layout=layout,
        iterations=int(rng.integers(*before)),
        micro_batches=4 if layout.pp > 2 else int(rng.integers(2, 5)),
        tp_calls=1,
        seed=seed,
        forward_s=float(rng.uniform(0.004, 0.008)),
        jitter=float(rng.uniform(0.005, 0.02)),
        hang_s=HANG_S,
        source=row.source,
        job=f"{row.source.name} {seed}",
        **row.changes,
    )
