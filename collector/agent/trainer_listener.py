"""The agent's end of the socket that training scripts connect to (`pacehound.trainer`), and who each of them is.

The kernel says which process has connected, and of which user. Where that process writes a ring its rank is known;
where it does not, it says its rank itself, and is believed unless another process has that rank.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.host.rank_process import RankProcess
from pacehound.trainer.meeting import FOLDER, SOCKET, Bell, Lines, Peer, address, credentials

logger = logging.getLogger("pacehound.agent")

MOST_PEERS = 1_024
"""Ranks of one host, and some that were refused: more connections than that are somebody's error."""

_MOST_RANKS = 1 << 20
_MOST_MICRO_BATCHES = 1 << 20
_BACKLOG = 1_024


@dataclass(slots=True, eq=False)
class Trainer:
    """The script of one rank; `rank` is -1 until it has said hello."""

    lines: Lines
    pid: int
    rank: int = -1
    attempt: int = 0
    world_size: int = 0
    agrees_every: int = 0
    micro_batches: int = 0
    replicas: int = 0
    stages: int = 0
    said: list[dict[str, Any]] = field(default_factory=list)


class TrainerListener:
    """Listens, and reads what scripts say.

    Parameters
    ----------
    run_dir
        The run folder.
    who
        Tells who has connected.

    Attributes
    ----------
    folder
        Where the socket lies, and tokens do.
    trainers
        Those that have said hello, by attempt and rank.
    refused
        How many connections were not taken.

    """

    def __init__(self, run_dir: Path, who: Callable[[socket.socket], Peer] = credentials) -> None:
        self.folder = run_dir / FOLDER
        self.trainers: dict[tuple[int, int], Trainer] = {}
        self.refused = 0
        self._who = who
        self._guests: dict[int, Trainer] = {}
        self._bell: Bell | None = None
        self._listening: socket.socket | None = None
        self._poll = select.epoll()
        try:
            self._open()
        except OSError as error:
            logger.warning("scripts cannot take orders here: %s", error)

    def look(self, processes: Iterable[RankProcess]) -> tuple[list[Trainer], list[Trainer]]:
        """Take in who comes, and read; who has said hello now, and who has hung up."""
        came: list[Trainer] = []
        left: list[Trainer] = []
        if self._listening is None:
            return came, left
        known = {process.pid: process for process in processes}
        ready = {number for number, _ in self._poll.poll(0)}
        # Whoever has left makes room for its successor first.
        for guest in [self._guests[number] for number in ready if number in self._guests]:
            try:
                for word in guest.lines.take():
                    if guest.rank >= 0:
                        guest.said.append(word)
                    else:
                        self._hear_hello(guest, word, known)
                        came.append(guest)
            except (ConnectionError, ValueError, TypeError, KeyError, OverflowError) as error:
                if self._let_go(guest, error):
                    left.append(guest)
        if self._listening.fileno() in ready:
            self._take_in()
        for trainer in self.trainers.values():
            if trainer.lines.has_unsent:
                self.say(trainer)
                self.ring()
        return came, left

    @property
    def descriptor(self) -> int:
        """It can be read while a script has said something, comes or leaves."""
        return self._poll.fileno()

    def say(self, trainer: Trainer, **word: Any) -> None:
        """Tell one of them, and what waits from before; who has hung up or reads nothing is found at the next look."""
        try:
            if word:
                trainer.lines.say(**word)
            else:
                trainer.lines.flush()
        except ConnectionError:
            with contextlib.suppress(OSError):
                trainer.lines.socket.shutdown(socket.SHUT_RDWR)

    def ring(self) -> None:
        """Have all of them look."""
        if self._bell is not None:
            self._bell.ring()

    def close(self) -> None:
        """The agent leaves; orders that are armed stay so. The socket's file is left to the next agent."""
        for guest in list(self._guests.values()):
            self._hang_up(guest)
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self._poll.close()

    def _open(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        bell = Bell(os.fspath(self.folder))
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            (self.folder / SOCKET).unlink(missing_ok=True)  # of an agent before; there is one at a time
            with address(os.fspath(self.folder)) as where:
                listening.bind(where)
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
        self._bell, self._listening = bell, listening
        self._poll.register(listening.fileno(), select.EPOLLIN)
        self.ring()

    def _take_in(self) -> None:
        assert self._listening is not None
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # nobody more, or gone again; of files there are none left
                break
            peer = self._who(connection)
            if peer.uid != os.geteuid() or len(self._guests) >= MOST_PEERS:
                self._refuse(f"process {peer.pid} of user {peer.uid}, with {len(self._guests)} here already")
                connection.close()
                continue
            guest = Trainer(Lines(connection), peer.pid)
            self._guests[connection.fileno()] = guest
            self._poll.register(connection.fileno(), select.EPOLLIN)
        self.ring()  # of those for whom there was no room to wait

    def _hear_hello(self, guest: Trainer, word: dict[str, Any], known: dict[int, RankProcess]) -> None:
        if word.get("say") != "hello":
            raise ValueError(f"it begins with {str(word)[:80]}")
        rank, attempt, world_size = int(word["rank"]), int(word["attempt"]), int(word["world_size"])
        process = known.get(guest.pid)
        if process is not None and rank not in (-1, process.rank):
            raise ValueError(f"it says that it is rank {rank}, and is rank {process.rank}")
        if process is not None:
            rank, attempt = process.rank, process.attempt
        if not (0 <= rank < _MOST_RANKS and attempt >= 0 and world_size <= _MOST_RANKS):
            raise ValueError(f"rank {rank} of {world_size}, attempt {attempt}: is RANK set, or given to connect?")
        others = {(one.attempt, one.rank) for one in known.values() if one.pid != guest.pid}
        if (attempt, rank) in others or (attempt, rank) in self.trainers:
            raise ValueError(f"another process is rank {rank} of attempt {attempt}")
        guest.rank, guest.attempt, guest.world_size = rank, attempt, max(world_size, 0)
        guest.agrees_every = max(int(word["agrees_every"]), 0)
        guest.micro_batches = min(max(int(word.get("micro_batches", 0)), 0), _MOST_MICRO_BATCHES)
        replicas, stages = (min(max(int(word.get(name, 0)), 0), _MOST_RANKS) for name in ("replicas", "stages"))
        # A layout of another number of ranks is none.
        guest.replicas, guest.stages = (replicas, stages) if replicas * stages == world_size else (0, 0)
        self.trainers[attempt, rank] = guest

    def _let_go(self, guest: Trainer, error: Exception) -> bool:
        """Whether it was one that had said hello."""
        was_known = self.trainers.get((guest.attempt, guest.rank)) is guest
        if was_known:
            del self.trainers[guest.attempt, guest.rank]
        if not isinstance(error, ConnectionError) or not was_known:
            self._refuse(f"process {guest.pid}: {error}")
        self._hang_up(guest)
        return was_known

    def _hang_up(self, guest: Trainer) -> None:
        self._guests.pop(guest.lines.socket.fileno(), None)
        guest.lines.close()

    def _refuse(self, why: str) -> None:
        self.refused += 1
        if self.refused <= 10:
            logger.warning("a script takes no orders: %s", why)
