"""What somebody at 3 a.m. needs beside a name: where it runs, what it does, what the machine says, what to drain."""

from __future__ import annotations

from collections.abc import Sequence

from pacehound.model.events import HostVitals, NicReading
from streams.hang.host_reports import HostReports

SHOWN_RANKS = 4
SHOWN_FRAMES = 6
SHOWN_LINES = 3
_UP = ("up", "unknown", "active", "4: active")  # loopback and tunnels say unknown


def case_notes(
    host_reports: HostReports, named: Sequence[int], waiting: Sequence[int], *, checkpoint_age_s: float | None
) -> tuple[str, ...]:
    """Sentences about the ranks that a finding names.

    `named` are culprits, or the ends of a link; of the healthy ranks that are `waiting` one stack is shown for
    comparison.
    """
    notes = []
    for rank in named[:SHOWN_RANKS]:
        notes.append(_where(host_reports, rank))
        stack = host_reports.stacks.get(rank)
        if stack is not None and stack.frames:
            notes.append(f"stack of rank {rank} ({stack.taken_by}): {' < '.join(stack.frames[:SHOWN_FRAMES])}")
    peer = next((r for r in waiting if r not in named and r in host_reports.stacks), None)
    if named and peer is not None and host_reports.stacks[peer].frames:
        frames = " < ".join(host_reports.stacks[peer].frames[:SHOWN_FRAMES])
        notes.append(f"a healthy rank, {peer}, for comparison: {frames}")
    hosts = tuple(dict.fromkeys(host_reports.host_of[rank] for rank in named if rank in host_reports.host_of))
    for host in hosts[:SHOWN_RANKS]:
        vitals = host_reports.vitals.get(host)
        notes += [] if vitals is None else _machine(host, vitals)
        notes += [f"kernel log of {host}: {line}" for line in host_reports.kernel_log.get(host, ())[:SHOWN_LINES]]
    if checkpoint_age_s is not None and named:
        notes.append(f"the last checkpoint is {checkpoint_age_s:.0f} s old")
    return tuple(note for note in notes if note)


def drain_proposal(host_reports: HostReports, culprits: Sequence[int]) -> str:
    """What to take out of service, where a rank is named: its host, or nothing where that is not known."""
    hosts = tuple(dict.fromkeys(host_reports.host_of[rank] for rank in culprits if rank in host_reports.host_of))
    return f"to drain: {', '.join(hosts)}" if hosts else ""


def _where(host_reports: HostReports, rank: int) -> str:
    host = host_reports.host_of.get(rank)
    process = host_reports.processes.get(rank)
    gpu = host_reports.gpu_of(rank)
    parts = [f"host {host}"] if host else []
    parts += [f"pid {process.pid}"] if process else []
    if gpu is not None:
        parts.append(f"GPU {gpu.index} ({gpu.uuid})")
        if gpu.throttle_reasons:
            reasons = ", ".join(gpu.throttle_reasons)
            parts.append(f"throttled: {reasons} at {gpu.sm_clock_mhz} MHz, {gpu.temperature_c} C")
        if gpu.xid:
            parts.append(f"XID {gpu.xid}")
    return f"rank {rank}: {', '.join(parts)}" if parts else ""


def _machine(host: str, vitals: HostVitals) -> list[str]:
    notes = [f"{vitals.oom_kills} processes on {host} were killed for memory"] if vitals.oom_kills else []
    notes += [words for nic in vitals.nics if (words := _nic(host, nic))]
    return notes


def _nic(host: str, nic: NicReading) -> str:
    counted = {name: count for name, count in nic.errors.items() if count}
    if nic.state.lower() not in _UP:
        return f"{nic.name} of {host} is {nic.state}"
    if not counted:
        return ""
    worst = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_LINES]
    return f"{nic.name} of {host} counts " + ", ".join(f"{count} {name}" for name, count in worst)
