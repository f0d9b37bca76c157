"""Jobs that hang: ranks, calls, links and devices."""

from __future__ import annotations

from typing import Any, get_args

from pacehound.model.events import StackState
from pacehound.model.topology import ring_edges
from simulator.faults import DeadDevice, Fault, SlowLink, StopRank, StuckRanks, WrongCall, WrongKind
from simulator.links import expert_groups
from simulator.network_view import is_network
from simulator.program import CommunicatorKind
from simulator.suites.injection import NAMED, PERHAPS, SURELY, Draw, Injected, dp_ring_edges, may, must, tree_links


def stopped(draw: Draw) -> Injected:
    if draw.chance():
        ranks = draw.ranks(1)
        faults: tuple[Fault, ...] = (StopRank(rank=ranks[0], step=draw.step),)
    else:
        ranks = draw.ranks()
        faults = (StuckRanks(ranks=ranks, step=draw.step, doing="stopped"),)
    if not draw.has_agent:
        mark = must(PERHAPS, "it writes no dump and its peers' dumps wait for it; nobody saw its process")
    elif draw.has_drops or not draw.sees_open or draw.hides_peers():
        mark = must(NAMED, "its process is stopped while the job stands; what is lost or unseen may weaken the word")
    else:
        mark = must(SURELY, "its peers wait in a call that it has not entered, and its process is stopped")
    return Injected(faults=faults, cause="H1", culprits=ranks, mark=mark)


def stuck(draw: Draw) -> Injected:
    ranks = draw.ranks()
    doing: StackState = draw.one(("data_loading", "lock", "storage"))
    has_stacks = draw.chance() and draw.has_agent
    fault = StuckRanks(ranks=ranks, step=draw.step, doing=doing)
    if has_stacks and draw.hides_peers() and doing == "lock":
        mark = may("whoever holds the lock may wait in one of the calls that are not seen")
    elif has_stacks and draw.hides_peers():
        mark = must(NAMED, "its stack is outside any call; that there are calls which are not seen may weaken the word")
    elif has_stacks:
        # Whoever holds a lock may be a thread that waits in a call.
        words = NAMED if doing == "lock" or draw.has_drops or not draw.sees_open else SURELY
        mark = must(
            words, "it has not entered the call its peers wait in, and its stack is outside any wait for a call"
        )
    elif draw.hides_peers():
        mark = may("it, and who waits for it in calls that are not seen, have not entered")
    elif draw.sees_open:
        mark = must(PERHAPS, "it has not entered; its process runs, and may be in a library that cannot be seen")
    elif draw.launches_whole_steps():
        mark = must(PERHAPS, "every other host has launched the whole step: it alone has launched less")
    else:
        mark = may("others have launched less than their peers, too: their hosts run ahead by so many calls alone")
    return Injected(faults=(fault,), cause="H1", culprits=ranks, changes={"has_stacks": has_stacks}, mark=mark)


def wrong_call(draw: Draw) -> Injected | None:
    what: WrongKind = draw.one(get_args(WrongKind))
    sizes: dict[CommunicatorKind, int] = {"tp": draw.layout.tp, "dp": draw.layout.dp}
    if what == "skip":
        sizes["pp"] = draw.layout.pp
    kinds = [kind for kind, size in sizes.items() if size > 1 and draw.is_seen(kind)]
    if not kinds:
        return None
    kind: CommunicatorKind = draw.one(kinds)
    (rank,) = draw.ranks(1)
    fault = WrongCall(rank=rank, step=draw.step, what=what, kind=kind)
    has_rows = draw.source.rows == "all"
    if what in ("op", "larger", "smaller"):
        if not draw.sees_open and (not has_rows or draw.has_drops):
            mark = may("no signature of the call is seen, or its row may be the one that was lost")
        elif has_rows:
            mark = must(NAMED, "its call differs from its peers', and from its own in earlier iterations")
        elif sizes[kind] > 2:
            mark = must(NAMED, "its open call differs from that of all its peers")
        else:
            mark = may("two open calls differ, and nothing says which of them is the wrong one")
    elif draw.sees_open and has_rows and not draw.hides_peers():
        mark = must(NAMED, "its peers wait for it while it waits for them, and it departs from its earlier iterations")
    else:
        mark = may("a cycle of waits needs open calls and the order of earlier iterations to say who left it")
    return Injected(faults=(fault,), cause="H2", culprits=(rank,), mark=mark)


def dead_link(draw: Draw) -> Injected | None:
    where: str = draw.one(("pp", "dp", "dp", "tree", "tp"))
    kind: CommunicatorKind
    layout = draw.layout
    changes: dict[str, Any] = {}
    if where == "pp" and layout.pp > 1:
        tp, dp, pp = layout.position(draw.one(range(layout.world_size - layout.tp * layout.dp)))
        kind, link, size = "pp", (layout.rank(tp, dp, pp), layout.rank(tp, dp, pp + 1)), 2
    elif where == "dp" and layout.dp > 1:
        kind, link, size = "dp", draw.one(dp_ring_edges(draw)), layout.dp
    elif where == "tree" and (links := tree_links(draw)) and not draw.base.is_sharded:
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
        mark = may("launches alone: who entered is known, not who finished")
    elif not draw.is_seen(kind):
        mark = may("the calls that use the link are not seen")
    elif size == 2:
        mark = must(NAMED, "both have entered, neither gets out, and only their link is between them")
    elif any(set(link) <= set(group) for group in expert_groups(layout, draw.base.ep)):
        mark = may("the all_to_all of its experts stands first, and all ranks of that are as far")
    elif draw.source.has_rates and is_network(draw.base, *link):
        mark = must(NAMED, "all have entered; its sender has sent the fewest chunks and its receiver got the fewest")
    elif draw.source.has_rates:
        mark = may("an NVLink: its chunks are not counted, and an edge between hosts is not the fewest for that")
    else:
        mark = may("all have entered and none gets out: without counts nobody stands apart")
    if mark.must_name and draw.hides_peers() and kind == "pp":
        mark = may("both wait for each other, or for peers in calls that are not seen")
    dead = SlowLink(link=link, bandwidth_factor=0.0, from_step=draw.step)
    return Injected(faults=(dead,), cause="H3", links=(link,), changes=changes, mark=mark)


def dead_device(draw: Draw) -> Injected | None:
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
        mark = must(NAMED, "its oldest open call is one that all its peers have completed")
    elif has_vitals:
        mark = must(NAMED, "the job stands and its device has an XID")
    else:
        mark = may("its host goes on launching, and nobody sees what its device completes")
    return Injected(
        faults=(DeadDevice(rank=rank, step=draw.step, kind=kind),),
        cause="H3",
        culprits=(rank,),
        changes={"has_vitals": has_vitals},
        mark=mark,
    )
