"""What hosts say of their hardware beside a simulated job, which has none: as often, and as much, as agents do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from collector.agent.host_watch import VITALS_EVERY_NS
from pacehound.model.events import (
    AgentCost,
    GpuReading,
    HostProcessors,
    HostSample,
    HostVitals,
    NicReading,
    RankProcessors,
)
from pacehound.model.routing import Event

_NICS = 8
"""A port for each card, as hosts of eight have them."""


def with_vitals(events: Iterable[Event]) -> Iterator[Event]:
    """Each host's hardware is as it should be, and that is said before how its processes are."""
    said_ns: dict[str, int] = {}
    for event in events:
        is_time = isinstance(event, HostSample) and event.time_ns - said_ns.get(event.host, 0) >= VITALS_EVERY_NS
        if isinstance(event, HostSample) and is_time and event.processes and not event.closed:
            said_ns[event.host] = event.time_ns
            yield vitals_of(event)
        yield event


def vitals_of(sample: HostSample) -> HostVitals:
    """What the hardware is like on which these processes run, a millisecond before."""
    ran_ns = sample.time_ns % 10**15  # it grows
    return HostVitals(
        job=sample.job,
        attempt=sample.attempt,
        time_ns=sample.time_ns - 1_000_000,
        host=sample.host,
        gpus=tuple(
            GpuReading(
                uuid=f"GPU-{sample.host}-{at}",
                index=at,
                model="NVIDIA H100 80GB HBM3",
                ranks=(process.rank,),
                sm_clock_mhz=1_980,
                max_sm_clock_mhz=1_980,
                temperature_c=61,
                power_w=655.5,
            )
            for at, process in enumerate(sample.processes)
        ),
        nics=tuple(NicReading(name=f"mlx5_{at}/1", state="4: ACTIVE") for at in range(_NICS)),
        processors=HostProcessors(count=192, busy_ns=40 * ran_ns),
        rank_processors=tuple(
            RankProcessors(rank=process.rank, pid=process.pid, ran_ns=4 * ran_ns, waited_ns=ran_ns // 1_000)
            for process in sample.processes
        ),
        agent=AgentCost(cpu_cores=0.02, resident_bytes=90_000_000, flush_s=1.0, shim_ns_per_call=180.0),
    )
