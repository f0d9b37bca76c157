"""Slow ranks and links."""

from __future__ import annotations

from dataclasses import replace

from pacehound.model.topology import ring_edges
from simulator.faults import SlowCompute, SlowLink
from simulator.network_view import is_network
from simulator.program import CommunicatorKind
from simulator.suites.injection import NAMED, Draw, Injected, Mark, dp_ring_edges, may, must, tree_links


def slow_compute(draw: Draw) -> Injected:
    ranks = draw.ranks()
    slow = SlowCompute(ranks=ranks, factor=_factor(draw, 1.6, 2.5), from_step=draw.step)
    if not draw.has_times:
        mark = may("no device start and end: neither arrivals nor transfers are seen, so no S1 to S3")
    elif draw.hides_peers():
        mark = may("its peers wait for it in calls that are not seen, and come as late as it does")
    else:
        mark = must(NAMED, "its own time grows while everybody else waits for it, and starts and ends are seen")
    has_vitals = draw.chance() and draw.source.run_ahead_calls > 0  # a rank on gloo has no GPU that could be hot
    return Injected(faults=(slow,), cause="S1", culprits=ranks, changes={"has_vitals": has_vitals}, mark=mark)


def _factor(draw: Draw, low: float, high: float) -> float:
    """How much longer a slow rank computes, for the iteration to grow by more than the tenth that counts as slow.

    With more stages than micro-batches, bubbles hide that share of a stage's delay.
    """
    hidden = max(1.0, draw.layout.pp / draw.base.micro_batches)
    return 1.0 + (float(draw.rng.uniform(low, high)) - 1.0) * hidden


def _link_mark(draw: Draw, link: tuple[int, int], kind: CommunicatorKind, size: int) -> Mark:
    """Whether a slow link can be told from the other ones of its communicator."""
    if not draw.has_times:
        return may("no device start and end: neither arrivals nor transfers are seen, so no S1 to S3")
    if not draw.is_seen(kind):
        return may("the calls that use the link are not seen")
    if kind == "pp":
        if draw.hides_peers():
            return may("the pair's late arrivals cannot be told from its transfers where others are not seen")
        if not is_network(draw.base, *link):
            return may("both ranks are on one host, where a copy takes longer for other reasons, too")
        return must(NAMED, "only two ranks use it together, in both directions: the transfer's time is the link's")
    if draw.source.has_rates and is_network(draw.base, *link):
        return must(NAMED, "its sender's rate is the lowest, and it crosses hosts, where rates are seen")
    if draw.source.has_rates:
        return may("it is an NVLink: nobody sees its rate, and the rates of other edges say nothing of it")
    return may("which edge of the communicator is slow: no rates are seen")


def _slow_link(draw: Draw, link: tuple[int, int], kind: CommunicatorKind, extra_s: float) -> SlowLink:
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


def _extra_s(draw: Draw) -> float:
    """About the time of an iteration: some of it hides in a pipeline's bubbles, or behind computation."""
    return _compute_s(draw) * float(draw.rng.uniform(0.8, 1.6))


def _compute_s(draw: Draw) -> float:
    """What an iteration computes, the pipeline's warm-up included."""
    base = draw.base
    forward_s = base.forward_s + (base.expert_s if base.ep > 1 else 0.0)
    return 3 * forward_s * (base.micro_batches + base.layout.pp - 1)


def slow_pair(draw: Draw) -> Injected | None:
    if draw.layout.pp == 1:
        return None
    tp, dp, pp = draw.layout.position(draw.one(range(draw.layout.world_size - draw.layout.tp * draw.layout.dp)))
    link = (draw.layout.rank(tp, dp, pp), draw.layout.rank(tp, dp, pp + 1))
    fault = _slow_link(draw, link, "pp", _extra_s(draw))
    return Injected(faults=(fault,), cause="S2", links=(link,), mark=_link_mark(draw, link, "pp", 2))


def slow_ring(draw: Draw) -> Injected | None:
    if draw.layout.dp < 2:
        return None
    link = draw.one(dp_ring_edges(draw))
    fault = _slow_link(draw, link, "dp", _extra_s(draw))
    return Injected(faults=(fault,), cause="S2", links=(link,), mark=_link_mark(draw, link, "dp", draw.layout.dp))


def slow_tree(draw: Draw) -> Injected | None:
    links = tree_links(draw)
    if not links or draw.base.is_sharded:
        return None
    draw = replace(draw, base=replace(draw.base, algorithm="tree"))
    link = draw.one(links)
    fault = _slow_link(draw, link, "dp", _extra_s(draw))
    return Injected(
        faults=(fault,),
        cause="S2",
        links=(link,),
        changes={"algorithm": "tree"},
        mark=_link_mark(draw, link, "dp", draw.layout.dp),
    )


def slow_nvlink(draw: Draw) -> Injected | None:
    if draw.layout.tp < 2:
        return None
    link = draw.one([edge for group in draw.layout.groups("tp") for edge in ring_edges(group)])
    fault = _slow_link(draw, link, "tp", _extra_s(draw))
    return Injected(faults=(fault,), cause="S2", links=(link,), mark=_link_mark(draw, link, "tp", draw.layout.tp))


def slow_both(draw: Draw) -> Injected | None:
    links = [edge for edge in dp_ring_edges(draw) if is_network(draw.base, *edge)]
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
        mark = may("the link is seen; the rank's peers wait for it in calls that are not, and come as late as it does")
    return Injected(faults=faults, cause="S3", culprits=(link[0],), links=(link,), mark=mark)
