"""The training processes of one host, as the rings name them, and the samples that tell how they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from collector.calls import rings
from collector.calls.rings import RingHeader
from collector.host.processes import PROC, TICK_NS, ProcessWatch, pid_here
from collector.host.rank_process import RankProcess
from pacehound.model.codes import JOINING
from pacehound.model.events import SWITCHED_OFF, HostSample, ProcessState, RunState
from pacehound.model.identity import attempt_mark

MAX_RANK = 1 << 20


class KnownProcess(msgspec.Struct, kw_only=True):
    """One process, as far as it is known; times are Unix times."""

    pid: int
    """As it knows itself."""
    start_ticks: int
    attempt: int
    """Which it is of those that this host has seen (`HostProcesses.add`)."""
    rank: int
    said_attempt: int | None = None
    """As the process counts; `None` where that is the same."""
    state: RunState = "unknown"
    since_ns: int = 0
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    said_failed: bool | None = None
    """What its PH_EXIT record said, where it wrote one."""
    world: bytes = b""
    """The handle of the communicator of all ranks that it joined last."""
    joined_ns: int = 0
    """When that was, by the monotonic clock."""
    has_left: bool = False
    """It has destroyed that one by itself."""
    is_off: bool = False
    """An error of ours has switched it off: what it calls is not seen any more."""
    has_ring: bool = True
    """False: it was found by its environment, and has written nothing."""
    host_pid: int | None = None
    """As this host numbers processes; `None` where it was not looked for yet, or was gone by then."""

    @property
    def pid_here(self) -> int:
        """The number to be told, and to look for."""
        return self.pid if self.host_pid is None else self.host_pid


class HostProcesses:
    """Watches the processes that write rings.

    Parameters
    ----------
    known
        What an earlier agent knew.
    closed_attempts
        Attempts about which nothing will be said any more.
    proc
        Where /proc is.

    """

    def __init__(self, known: list[KnownProcess], closed_attempts: list[int], proc: Path = PROC) -> None:
        self._proc = proc
        self._known = {(process.pid, process.start_ticks): process for process in known}
        self._closed = set(closed_attempts)
        self._watches: dict[tuple[int, int], ProcessWatch] = {}
        self._found_gone: dict[tuple[int, int], int] = {}  # when that was, Unix time

    @property
    def known(self) -> list[KnownProcess]:
        """Every process seen so far."""
        return list(self._known.values())

    @property
    def closed_attempts(self) -> list[int]:
        """Attempts about which nothing will be said any more."""
        return sorted(self._closed)

    def any_alive(self) -> bool:
        """Whether one is still there."""
        return any(process.state != "exited" for process in self._known.values())

    def add(self, header: RingHeader) -> None:
        """A ring says who writes it.

        A command may start its ranks several times: `torchrun` twice in a script, `mp.spawn` for each fold, elastic
        ranks that come in other numbers. They count themselves as those before them did. What begins behind all that
        have joined the last attempt, and have left, is another one: hosts that have seen the same say the same.
        """
        key = (header.pid, header.process_start_ticks)
        if key not in self._known:
            attempt = self._attempt(header.attempt, header.process_start_ticks)
            self._known[key] = KnownProcess(
                pid=header.pid,
                start_ticks=header.process_start_ticks,
                attempt=attempt,
                rank=header.rank,
                said_attempt=None if attempt == header.attempt else header.attempt,
            )
        known = self._known[key]
        known.rank, known.has_ring = max(known.rank, header.rank), True
        for other, process in list(self._known.items()):
            if not process.has_ring and (process.attempt, process.rank) == (known.attempt, known.rank):
                self._forget(other)  # it is a launcher of this one

    def mark_of(self, process: tuple[int, int]) -> int:
        """What makes the ids that a process, (pid, start ticks), gives its communicators those of its attempt.

        0 where it counts attempts as this host does.
        """
        known = self._known.get(process)
        if known is None or known.said_attempt is None:
            return 0
        return attempt_mark(known.said_attempt) ^ attempt_mark(known.attempt)

    def add_silent(self, found: RankProcess) -> None:
        """A process is there whose rank has written nothing."""
        attempt = self._attempt(found.attempt, found.start_ticks)
        if (attempt, found.rank) not in self.local_ranks():
            self._known[found.pid, found.start_ticks] = KnownProcess(
                pid=found.pid, start_ticks=found.start_ticks, attempt=attempt, rank=found.rank, has_ring=False
            )

    def _attempt(self, said: int, start_ticks: int) -> int:
        """The attempt of a process that was not known before."""
        joined = [process for process in self._known.values() if process.world]
        latest = max((process.attempt for process in joined), default=-1)
        if said > latest:
            return said
        # Whoever was there when the others joined may have joined with them, however soon they left.
        began_ns = start_ticks * TICK_NS
        of_latest = [process for process in joined if process.attempt == latest]
        return latest + all(process.state == "exited" and process.joined_ns < began_ns for process in of_latest)

    def placed(self, header: RingHeader) -> RingHeader:
        """The header with the attempt that its process is of."""
        attempt = self._known[header.pid, header.process_start_ticks].attempt
        return header if attempt == header.attempt else replace(header, attempt=attempt)

    def _forget(self, key: tuple[int, int]) -> None:
        del self._known[key]
        if (watch := self._watches.pop(key, None)) is not None:
            watch.close()

    def note_rank(self, header: RingHeader, rank: int) -> None:
        """A record says which rank its process is, where the header could not."""
        process = self._known[header.pid, header.process_start_ticks]
        if process.rank < 0 and 0 <= rank < MAX_RANK:
            process.rank = rank

    def note_exit(self, header: RingHeader, detail: str, failed: bool) -> bool:
        """The process said why it leaves; whether that is news."""
        process = self._known[header.pid, header.process_start_ticks]
        is_news = bool(detail) and process.detail != detail
        process.detail = detail or process.detail
        process.said_failed = failed
        if process.state == "exited":
            _trust_its_own_word(process)
        return is_news

    def note_worlds(self, header: RingHeader, records: rings.Records) -> bool:
        """Which communicator of all ranks the process has joined, and whether it has left it; whether that is news."""
        process = self._known[header.pid, header.process_start_ticks]
        had_left = process.has_left
        kinds = records.view(rings.CALL)["kind"]
        for record in records[(kinds == rings.GROUP) | (kinds == rings.DESTROY)]:
            group = record.view(rings.GROUP_BODY)
            handle = bytes(group["handle"])
            if int(group["kind"]) == rings.DESTROY:
                process.has_left |= handle == process.world
            elif group["is_world"] and rings.text_of(group["name"]) != JOINING:
                process.world, process.has_left, process.joined_ns = handle, False, int(group["created_ns"])
                if 0 <= (rank := int(group["rank"])) < MAX_RANK:
                    process.rank = rank  # a worker of a pool may be another one each time
        return process.has_left and not had_left

    def was_found_gone(self, header: RingHeader) -> bool:
        """Whether this agent has not seen the process but gone: it began later than the process ended."""
        return (header.pid, header.process_start_ticks) in self._found_gone

    def note_last_word(self, header: RingHeader, unix_ns: int) -> None:
        """When a process that was found gone wrote something: it left soon after that, not when it was looked for."""
        key = header.pid, header.process_start_ticks
        self._known[key].since_ns = min(unix_ns, self._found_gone[key])  # a ring may say anything

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Can be read when a process has ended that was still there: how is to be seen at once (`look_at_ended`)."""
        return tuple(watch.descriptor for watch in self._watches.values() if watch.descriptor >= 0)

    def look_at_ended(self, now_unix_ns: int) -> bool:
        """Look at processes that have just ended, before their parent has waited for them; whether one has."""
        ended = {key for key, watch in self._watches.items() if watch.has_ended()}
        return bool(ended) and self._look_at(ended, now_unix_ns)

    def look(self, now_unix_ns: int) -> bool:
        """Look at every process that was still there; whether one has changed."""
        return self._look_at(self._known.keys(), now_unix_ns)

    def _look_at(self, keys: Collection[tuple[int, int]], now_unix_ns: int) -> bool:
        has_changed = False
        for key, process in self._known.items():
            if process.state == "exited" or key not in keys:
                continue
            is_first_look = key not in self._watches
            if is_first_look:
                process.host_pid = process.host_pid or pid_here(*key, proc=self._proc)
                self._watches[key] = ProcessWatch(process.pid_here, process.start_ticks, proc=self._proc)
            sighting = self._watches[key].look()
            if sighting.state != process.state:
                has_changed = True
                process.state, process.since_ns = sighting.state, now_unix_ns
            process.exit_code, process.signal = sighting.exit_code, sighting.signal
            if process.state == "exited":
                if is_first_look:
                    self._found_gone[key] = now_unix_ns
                self._watches.pop(key).close()
                _trust_its_own_word(process)
        return has_changed

    def alive(self) -> list[RankProcess]:
        """Those that are there and whose rank is known."""
        return [
            RankProcess(
                attempt=p.attempt,
                rank=p.rank,
                pid=p.pid_here,
                start_ticks=p.start_ticks,
                own_pid=None if p.pid == p.pid_here else p.pid,
            )
            for p in self._known.values()
            if p.rank >= 0 and p.state != "exited"
        ]

    def gone(self) -> set[tuple[int, int]]:
        """(pid, start ticks) of the processes that have left."""
        return {key for key, process in self._known.items() if process.state == "exited"}

    def are_off(self, keys: set[tuple[int, int]]) -> None:
        """These processes, by pid and start ticks, tell nothing of their calls any more."""
        for key in keys & self._known.keys():
            self._known[key].is_off = True

    def gone_ranks(self) -> set[tuple[int, int]]:
        """(attempt, rank) of which no process is left that tells of its calls."""
        return self.local_ranks() - {
            (process.attempt, process.rank)
            for process in self._known.values()
            if process.state != "exited" and not process.is_off
        }

    def local_ranks(self) -> set[tuple[int, int]]:
        """(attempt, rank) of all processes."""
        return {(process.attempt, process.rank) for process in self._known.values() if process.rank >= 0}

    def samples(
        self,
        job: str,
        host: str,
        now_unix_ns: int,
        closed_why: str = "",
        *,
        unseen: Mapping[int, tuple[str, ...]] | None = None,
        claimed: int | None = None,
    ) -> list[HostSample]:
        """One sample per attempt that is not over; an attempt that a later one has replaced is closed when all left.

        A host without a rank says so too: it may offer itself to a job that has lost some.

        Parameters
        ----------
        job, host, now_unix_ns
            As in the events.
        closed_why
            Not empty: the job has ended, and this is how.
        unseen
            By pid: libraries whose calls are not seen (collector/agent/blindness.py).
        claimed
            The attempt of a job that has had no rank here yet; `None` while the launcher has not said which it is.

        """
        attempts = {process.attempt for process in self._known.values()}
        if not attempts and (claimed is not None or closed_why):
            attempts = {claimed or 0}  # a job that never had a rank ends too
        latest = max(attempts, default=0)
        sampled = []
        for attempt in sorted(attempts - self._closed):
            processes = sorted(
                (p for p in self._known.values() if p.attempt == attempt and p.rank >= 0), key=lambda p: (p.rank, p.pid)
            )
            is_replaced = attempt != latest and all(p.state == "exited" for p in processes)
            why = closed_why or ("job ended" if is_replaced else "")
            if why:
                self._closed.add(attempt)
            sampled.append(
                HostSample(
                    job=job,
                    attempt=attempt,
                    time_ns=now_unix_ns,
                    host=host,
                    processes=tuple(_state(p, (unseen or {}).get(p.pid_here, ())) for p in processes),
                    closed=bool(why),
                    closed_why=why,
                    is_later_launch=any(p.said_attempt is not None for p in processes),
                )
            )
        return sampled

    def close(self) -> None:
        """Let go of every pidfd."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()


def _trust_its_own_word(process: KnownProcess) -> None:
    """Where nobody can tell how a process left, what it wrote last stands: Python leaves with 0, or 1 and a trace."""
    if process.exit_code is None and process.signal is None and process.said_failed is not None:
        process.exit_code = int(process.said_failed)


def _state(process: KnownProcess, unseen: tuple[str, ...]) -> ProcessState:
    return ProcessState(
        rank=process.rank,
        pid=process.pid_here,
        state=process.state,
        since_ns=process.since_ns,
        exit_code=process.exit_code,
        signal=process.signal,
        detail=process.detail,
        unseen=(SWITCHED_OFF,) if process.is_off else unseen,
        has_left=process.has_left,
    )
