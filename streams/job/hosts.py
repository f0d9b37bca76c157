"""The hosts of one job: who is heard, who is silent, what they have lost, and which of their ranks pause."""

from __future__ import annotations

from pacehound.model.events import (
    CHECKPOINT_BEGIN,
    EVALUATION_BEGIN,
    HOLD_BEGIN,
    HostSample,
    Markers,
    Progress,
    Topology,
)
from pacehound.model.job_end import JOB_ENDED, JOB_FAILED, JOB_INTERRUPTED, JOB_KILLED
from streams.job.thresholds import LATE_NS
from streams.rounds.giving_up import GIVEN_UP, Patience


class JobHosts:
    """Follows the hosts of one attempt of a job.

    Attributes
    ----------
    host_of, ranks_of
        The host of each rank, the ranks of each host.
    closed
        Hosts where the job has ended or that are given up, with the reason.
    """

    def __init__(self, lateness_ns: int) -> None:
        self._lateness_ns = lateness_ns
        self.host_of: dict[int, str] = {}
        self.ranks_of: dict[str, tuple[int, ...]] = {}
        self.closed: dict[str, str] = {}
        self._last_report_ns: dict[str, int] = {}
        self._patience: dict[str, Patience] = {}  # of hosts that are silent
        # Where there are any: calls that were lost, by host and communicator, and rounds that nobody has told of, by
        # communicator.
        self._dropped: dict[tuple[str, str], int] = {}
        self._skipped: dict[str, int] = {}
        self._paused: set[int] = set()  # ranks in a checkpoint or an evaluation now

    @property
    def is_paused(self) -> bool:
        """Some rank is in a checkpoint or an evaluation."""
        return bool(self._paused)

    @property
    def given_up(self) -> frozenset[str]:
        """Hosts that nobody waits for any more."""
        return frozenset(host for host, why in self.closed.items() if why == GIVEN_UP)

    @property
    def why_closed(self) -> str:
        """Why the job has ended, when all of them are closed."""
        reasons = set(self.closed.values())
        return next((why for why in (JOB_INTERRUPTED, JOB_KILLED, JOB_FAILED, GIVEN_UP) if why in reasons), JOB_ENDED)

    def expect(self, topology: Topology) -> None:
        """A host of the communicator of all ranks."""
        self.ranks_of[topology.host] = topology.host_ranks

    def is_heard(self, host: str) -> None:
        """It has spoken: the patience with it begins anew."""
        self._patience.pop(host, None)

    def is_unchanged(self, host: str, time_ns: int) -> None:
        """Its processes are as its last sample has them."""
        self._note_report(host, time_ns)

    def ticks_silently(self, host: str, tick_ns: int) -> bool:
        """One more tick without a word; whether it is given up with it."""
        is_given_up = self._patience.setdefault(host, Patience()).ends(tick_ns)
        if is_given_up:
            self.closed.setdefault(host, GIVEN_UP)
        return is_given_up

    def on_topology(self, topology: Topology) -> None:
        """Where ranks are."""
        self.host_of.update(dict.fromkeys(topology.host_ranks, topology.host))

    def on_progress(self, progress: Progress) -> None:
        """A host has reported, and what it has lost."""
        self._note_report(progress.host, progress.time_ns)
        if progress.dropped_total:
            self._dropped[progress.host, progress.communicator] = progress.dropped_total
        elif self._dropped:
            self._dropped.pop((progress.host, progress.communicator), None)
        if progress.skipped_rounds:
            self._skipped[progress.communicator] = progress.skipped_rounds
        elif self._skipped:
            self._skipped.pop(progress.communicator, None)

    def on_sample(self, sample: HostSample) -> None:
        """A host has reported, and whether the job has ended there."""
        self._note_report(sample.host, sample.time_ns)
        if sample.closed:
            self.closed[sample.host] = sample.closed_why

    def on_markers(self, markers: Markers) -> None:
        """Where checkpoints, evaluations and holds begin and end."""
        for rank, name in zip(markers.ranks, markers.names, strict=True):
            if name in (CHECKPOINT_BEGIN, EVALUATION_BEGIN, HOLD_BEGIN):
                self._paused.add(rank)
            else:
                self._paused.discard(rank)  # an optimizer step ends an evaluation too, however it was begun

    def _note_report(self, host: str, time_ns: int) -> None:
        # Heartbeats are heard of when they come, and everything else when the job's time has come to it.
        last_report_ns = self._last_report_ns.get(host)
        if last_report_ns is None or last_report_ns < time_ns:
            self._last_report_ns[host] = time_ns

    def silent_since_ns(self, now_ns: int) -> dict[str, int]:
        """Hosts that have not been heard of for longer than is usual, with their last word."""
        if now_ns - min(self._last_report_ns.values(), default=now_ns) <= self._lateness_ns:
            return {}  # as nearly always
        return {
            host: self._last_report_ns[host]
            for host in sorted(self.ranks_of)
            if host in self._last_report_ns
            and host not in self.closed
            and now_ns - self._last_report_ns[host] > self._lateness_ns
        }

    def is_one_late(self, now_ns: int, silent: dict[str, int]) -> bool:
        """Whether one has not reported for a while that is not silent for good."""
        if now_ns - min(self._last_report_ns.values(), default=now_ns) <= LATE_NS:
            return False
        return any(
            now_ns - last_report_ns > LATE_NS
            for host, last_report_ns in self._last_report_ns.items()
            if host not in silent and host not in self.closed
        )

    def unseen(self, names: dict[str, tuple[str, tuple[int, ...]]], silent: dict[str, int]) -> tuple[str, ...]:
        """Sentences about what they have lost; `names` holds name and members of each communicator."""
        sentences = []
        if dropped := sum(self._dropped.values()):
            sentences.append(f"{dropped} calls were lost before they could be read")
        for communicator, skipped in sorted(item for item in self._skipped.items() if item[1]):
            name, _ = names.get(communicator, (communicator, ()))
            sentences.append(f"{skipped} rounds of {name} were told of by nobody; it was begun anew behind them")
        if silent:
            sentences.append(f"hosts {', '.join(sorted(silent))} are silent: their agents or machines may be gone")
        return tuple(sentences)
