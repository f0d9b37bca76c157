"""What somebody at 3 a.m. needs beside a name: where it runs, what it does, what the machine says, what to drain."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pacehound.model.events import HostVitals, NicReading
from pacehound.model.evidence import Evidence
from pacehound.model.evidence.machines import (
    CheckpointAge,
    KernelLog,
    KilledForMemory,
    NetworkCard,
    ToDrain,
    Where,
)
from streams.hang.host_reports import HostReports, shown_stack

SHOWN_RANKS = 4
SHOWN_LINES = 3
_UP = ("up", "unknown", "active", "4: active")  # loopback and tunnels say unknown


def case_notes(
    host_reports: HostReports, named: Sequence[int], waiting: Sequence[int], *, checkpoint_age_s: float | None
) -> tuple[Evidence, ...]:
    """What is known of the ranks that a finding names.

    `named` are culprits, or the ends of a link; of the healthy ranks that are `waiting` one stack is shown for
    comparison.
    """
    notes: list[Evidence] = []
    for rank in named[:SHOWN_RANKS]:
        notes += _where(host_reports, rank)
        stack = host_reports.stacks.get(rank)
        if stack is not None and stack.frames:
            notes.append(shown_stack(stack, "named"))
    peer = next((r for r in waiting if r not in named and r in host_reports.stacks), None)
    if named and peer is not None and host_reports.stacks[peer].frames:
        notes.append(shown_stack(host_reports.stacks[peer], "healthy"))
    hosts = tuple(dict.fromkeys(host_reports.host_of[rank] for rank in named if rank in host_reports.host_of))
    for host in hosts[:SHOWN_RANKS]:
        vitals = host_reports.vitals.get(host)
        notes += [] if vitals is None else _machine(host, vitals)
        notes += [KernelLog(host=host, line=line) for line in host_reports.kernel_log.get(host, ())[:SHOWN_LINES]]
    if checkpoint_age_s is not None and named:
        notes.append(CheckpointAge(age_s=checkpoint_age_s))
    return tuple(notes)


def drain_proposal(host_reports: HostReports, culprits: Sequence[int]) -> tuple[ToDrain, ...]:
    """What to take out of service, where a rank is named: its host, or nothing where that is not known."""
    hosts = tuple(dict.fromkeys(host_reports.host_of[rank] for rank in culprits if rank in host_reports.host_of))
    return (ToDrain(hosts=hosts),) if hosts else ()


def _where(host_reports: HostReports, rank: int) -> list[Where]:
    host = host_reports.host_of.get(rank)
    process = host_reports.processes.get(rank)
    gpu = host_reports.gpu_of(rank)
    if not host and process is None and gpu is None:
        return []
    known = Where(rank=rank, host=host or None, pid=None if process is None else process.pid)
    if gpu is None:
        return [known]
    return [
        msgspec.structs.replace(
            known,
            gpu_index=gpu.index,
            gpu_uuid=gpu.uuid,
            throttle_reasons=gpu.throttle_reasons,
            sm_clock_mhz=gpu.sm_clock_mhz,
            temperature_c=gpu.temperature_c,
            xid=gpu.xid,
        )
    ]


def _machine(host: str, vitals: HostVitals) -> list[Evidence]:
    notes: list[Evidence] = [KilledForMemory(host=host, n=vitals.oom_kills)] if vitals.oom_kills else []
    return [*notes, *(card for nic in vitals.nics for card in _card(host, nic))]


def _card(host: str, nic: NicReading) -> list[NetworkCard]:
    counted = {name: count for name, count in nic.errors.items() if count}
    if nic.state.lower() not in _UP:
        return [NetworkCard(host=host, name=nic.name, state=nic.state)]
    if not counted:
        return []
    worst = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_LINES]
    return [NetworkCard(host=host, name=nic.name, state=nic.state, errors=tuple(worst))]
