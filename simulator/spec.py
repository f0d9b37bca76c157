"""What a simulated job looks like: its layout, its work, its machines, its faults and who watches it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from pacehound.model.topology import Layout
from simulator.faults import (
    DeadDevice,
    EveryNth,
    ExitRank,
    Fault,
    HiddenLateness,
    Pause,
    RandomPauses,
    SilentHost,
    SlowCompute,
    SlowLink,
    Spike,
    StopRank,
    StuckRanks,
    SymmetricHang,
    WrongCall,
)
from simulator.links import Network
from simulator.nccl_graph import ring_edges, tree_edges
from simulator.program import Work
from simulator.source import C10D_GLOO, Source

STACKS_AFTER_S = 4.0
"""When the agents look at what their ranks do instead of going on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A hybrid-parallel training job, laid out as Megatron does, and what befalls it."""

    layout: Layout = field(default_factory=lambda: Layout(tp=2, dp=2, pp=2))
    iterations: int = 100
    micro_batches: int = 8
    seed: int = 0
    ranks_per_host: int = 8
    forward_s: float = 0.004  # computation of one micro-batch on one stage; backward takes twice as long
    optimizer_s: float = 0.006
    tp_calls: int = 2  # tensor-parallel all_reduces in each forward and each backward pass of a stage
    # per rank: one tensor-parallel all_reduce, one activation sent to the next stage, all gradients
    tp_bytes: int = 8 << 20
    pp_bytes: int = 8 << 20
    dp_bytes: int = 256 << 20
    dp_buckets: int = 4
    is_sharded: bool = False  # gradients are reduce-scattered and parameters gathered, instead of all-reduced
    overlaps: bool = False  # gradients are exchanged while the last backward pass still computes
    algorithm: Literal["ring", "tree"] = "ring"  # of the data-parallel all_reduces: all other calls go round a ring
    # so many neighbours of a data-parallel group share their experts (1: there are none); what a rank sends them in
    # one exchange of tokens, and what its experts compute in a forward pass, where the load is even
    ep: int = 1
    ep_bytes: int = 4 << 20
    expert_s: float = 0.002
    within_host_bytes_per_s: float = 200e9
    between_hosts_bytes_per_s: float = 25e9
    latency_s: float = 10e-6
    jitter: float = 0.01  # relative standard deviation of every computation
    stage_work: tuple[float, ...] = ()  # what each stage computes, against the others; none: all the same
    sequence_spread: float = 0.0  # of the logarithm of what a micro-batch computes: its sequences differ in length
    step_spread: float = 0.0  # of the logarithm of what all ranks compute in a step: its sequences differ together
    # of the logarithm of what a rank needs for the same work, by what its device is, and by what wanders over some
    # `load.WANDERS_OVER` steps
    device_spread: float = 0.0
    wandering: float = 0.0
    # per rank and step: the chance to lose so much time for no reason
    spike_probability: float = 0.0
    spike_s: float = 0.0
    faults: tuple[Fault, ...] = ()
    source: Source = C10D_GLOO
    # how far each host's clock is ahead of true time; hosts beyond the end of it have none
    clock_offsets_ms: tuple[float, ...] = ()
    dropped_fraction: float = 0.0  # rows that the agent loses; they are counted, and missing in the data
    has_vitals: bool = False  # agents read their GPUs: a slow one says that it is too hot, a dead one has an XID
    has_stacks: bool = False  # agents look at the stacks of their ranks when nothing has moved for `STACKS_AFTER_S`
    hang_s: float = 30.0  # how long event time goes on after a hang or an exit, until the job is killed
    job: str = "simulated"
    attempt: int = 0
    start_unix_ns: int = 1_767_225_600_000_000_000  # true time of the job's start, a whole second

    def __post_init__(self) -> None:
        for name in ("iterations", "micro_batches", "ranks_per_host", "tp_calls", "dp_buckets"):
            if getattr(self, name) < 1:
                raise ValueError(f"a simulated job has {name}={getattr(self, name)}; it must be at least 1")
        if not 0.0 <= self.dropped_fraction < 1.0:
            raise ValueError(f"dropped_fraction is {self.dropped_fraction}; it must be in [0, 1)")
        if self.stage_work and len(self.stage_work) != self.layout.pp:
            raise ValueError(f"stage_work has {len(self.stage_work)} entries for {self.layout.pp} stages")
        if self.start_unix_ns % 1_000_000_000:
            raise ValueError(f"start_unix_ns {self.start_unix_ns} is not a whole second")
        if self.ep < 1 or self.layout.dp % self.ep:
            raise ValueError(
                f"ep={self.ep} neighbours cannot share experts in data-parallel groups of {self.layout.dp}"
            )
        for fault in self.faults:
            self._check(fault)
        if sum(ends_job(fault) for fault in self.faults) > 1:
            raise ValueError("a job ends once: give one fault at most that nobody survives (stop, exit, dead link)")

    def with_longer_iterations(self, times: float) -> JobSpec:
        """The same job, computing for so many times as long.

        >>> JobSpec(forward_s=0.004).with_longer_iterations(10).forward_s
        0.04
        """
        return replace(self, forward_s=times * self.forward_s, optimizer_s=times * self.optimizer_s)

    @property
    def work(self) -> Work:
        """What one iteration computes and moves."""
        return Work(
            micro_batches=self.micro_batches,
            forward_s=self.forward_s,
            backward_s=2 * self.forward_s,
            optimizer_s=self.optimizer_s,
            tp_calls=self.tp_calls,
            tp_bytes=self.tp_bytes,
            pp_bytes=self.pp_bytes,
            dp_bytes=self.dp_bytes,
            dp_buckets=self.dp_buckets,
            is_sharded=self.is_sharded,
            ep=self.ep,
            ep_bytes=self.ep_bytes,
            expert_s=self.expert_s,
            overlaps=self.overlaps,
        )

    @property
    def network(self) -> Network:
        """The machines' links."""
        return Network(
            ranks_per_host=self.ranks_per_host,
            within_host_bytes_per_s=self.within_host_bytes_per_s,
            between_hosts_bytes_per_s=self.between_hosts_bytes_per_s,
            latency_s=self.latency_s,
        )

    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """World ranks of each host."""
        world = range(self.layout.world_size)
        return tuple(tuple(world[i : i + self.ranks_per_host]) for i in world[:: self.ranks_per_host])

    def _check(self, fault: Fault) -> None:
        match fault:
            case SlowCompute() | EveryNth() | Spike() | StuckRanks():
                ranks = fault.ranks
            case StopRank() | ExitRank() | HiddenLateness() | WrongCall() | DeadDevice():
                ranks = (fault.rank,)
            case SlowLink():
                ranks = fault.link
            case Pause() | RandomPauses() | SilentHost() | SymmetricHang():
                ranks = ()
        outside = [rank for rank in ranks if not 0 <= rank < self.layout.world_size]
        if outside:
            raise ValueError(f"{fault} names ranks {outside} outside the world of {self.layout.world_size}")
        match fault:
            case SlowCompute() | SlowLink() | RandomPauses() | HiddenLateness():
                last = fault.from_step
            case Pause() | EveryNth():
                last = fault.every_steps - 1
            case _:
                last = fault.step
        if not 0 <= last < self.iterations:
            raise ValueError(f"{fault} begins at step {last}; the job has steps 0..{self.iterations - 1}")
        if isinstance(fault, SlowLink) and frozenset(fault.link) not in self._links():
            raise ValueError(f"no communicator of this layout sends from rank {fault.link[0]} to {fault.link[1]}")

    def _links(self) -> set[frozenset[int]]:
        rings = [group for kind in ("tp", "dp") for group in self.layout.groups(kind)]
        channels = [edges for ring in rings for edges in ring_edges(ring, self.ranks_per_host)]
        if self.algorithm == "tree":
            channels += [edges for g in self.layout.groups("dp") for edges in tree_edges(g, self.ranks_per_host)]
        links = {frozenset(edge) for edges in channels for edge in edges}
        for pipeline in self.layout.groups("pp"):
            links |= {frozenset(edge) for edge in pairwise(pipeline)}
        return links


def ends_job(fault: Fault) -> bool:
    """Nobody goes on after this fault."""
    match fault:
        case ExitRank() | StuckRanks() | WrongCall() | DeadDevice() | SymmetricHang():
            return True
        case SilentHost():
            return fault.is_gone
        case StopRank():
            return fault.resume_after_s is None
        case SlowLink():
            return fault.bandwidth_factor == 0.0
        case _:
            return False
