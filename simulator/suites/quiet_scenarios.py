"""Nobody to name: nothing is wrong, or nobody stands apart, or nobody can say."""

from __future__ import annotations

from simulator.faults import HiddenLateness, RandomPauses, SilentHost, SymmetricHang
from simulator.members import groups_of
from simulator.program import CommunicatorKind
from simulator.suites.injection import Draw, Injected, may


def clean(draw: Draw) -> Injected:
    return Injected(mark=may("nothing was put in"))


def pauses(draw: Draw) -> Injected:
    step_s = 3 * draw.base.forward_s * draw.base.micro_batches
    pauses = RandomPauses(probability=2.0 / draw.layout.world_size, extra_s=step_s, from_step=draw.step)
    return Injected(faults=(pauses,), mark=may("the delay wanders over all ranks: no rank explains half of it"))


def hidden_lateness(draw: Draw) -> Injected | None:
    if draw.layout.tp > 1 or not draw.base.overlaps:
        return None  # tensor-parallel peers would wait for it within the pass
    late = HiddenLateness(rank=draw.ranks(1)[0], share=0.6, from_step=draw.step)
    return Injected(
        faults=(late,),
        changes={"tp_calls": 4},
        mark=may("a late arrival that computation hides costs nothing and is charged nothing"),
    )


def symmetric(draw: Draw) -> Injected | None:
    sizes: dict[CommunicatorKind, int] = {"dp": draw.layout.dp, "tp": draw.layout.tp}
    kinds = [kind for kind, size in sizes.items() if size > 2]
    if not kinds:
        return None  # in a pair, a collective that both entered and neither left points at their link
    kind = draw.one(kinds)
    hang = SymmetricHang(
        kind=kind, group=int(draw.rng.integers(len(groups_of(draw.base).members[kind]))), step=draw.step
    )
    return Injected(faults=(hang,), cause="H3", mark=may("all have entered and all are as far: nobody stands apart"))


def silent_agent(draw: Draw) -> Injected:
    host = int(draw.rng.integers(len(draw.base.hosts)))
    silent = SilentHost(host=host, step=draw.step, is_gone=False)
    return Injected(faults=(silent,), mark=may("the agent is gone and the job goes on: silence is no hang"))


def gone_host(draw: Draw) -> Injected:
    host = int(draw.rng.integers(len(draw.base.hosts)))
    gone = SilentHost(host=host, step=draw.step, is_gone=True)
    return Injected(
        faults=(gone,),
        cause="H1",
        culprits=draw.base.hosts[host],
        mark=may("nobody on that host can say what its ranks do: they may be suspected, or nobody"),
    )
