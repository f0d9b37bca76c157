"""Passes offers on to the scripts of this host's ranks, holds the token that they decide by, and says what they answer.

What is not confirmed ends when the controller says nothing more; what is confirmed stands, whoever dies
(`pacehound.trainer.token`).
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from collector.agent.trainer_listener import Trainer, TrainerListener
from collector.host.rank_process import RankProcess
from pacehound.model.events.control import RecoveryQuestion, TrainerAnswer, TrainerState
from pacehound.model.orders import MOST_RANKS, MOST_WORLD, Apply, Confirm, Offer, Withdraw
from pacehound.trainer.order import RECOVERY
from pacehound.trainer.token import Token

logger = logging.getLogger("pacehound.agent")

REPORT_NS = 500_000_000
"""So often the controller hears how far the ranks are."""

LEASE_NS = 8_000_000_000
"""It renews an offer four times as often. Nobody waits meanwhile: a dead controller's offer is forgotten, no more."""

MOST_ENDED = 100
"""Tickets that are not offered again; whose orders come late is refused for that already, by their number."""

MOST_WITHIN_MS = 60_000
"""Ranks may wait for so long for an answer; who asks for longer is looked after for this long."""

_MOST_QUESTION = 8_192
"""Characters, as in pacehound/trainer/recovering.py."""

_DIGEST = re.compile(r"[0-9a-f]{32}")

MOST_WHY = 500
"""Characters of a reason that a script gives."""

_MOST_PER_S = 1e9
"""Steps: nobody makes one in a nanosecond, and what is not finite does not travel."""

_FINAL: tuple[TrainerState, ...] = ("unable", "applied", "kept", "absent")
_SAID: dict[str, TrainerState] = {
    "able": "able", "unable": "unable", "armed": "armed", "applied": "applied", "kept": "kept",
}  # fmt: skip
_SILENT = "the controller says nothing more"


class Trainers:
    """Of one host, with one offer at a time: a newer one ends one before that is not confirmed.

    Attributes
    ----------
    ticket
        The offer that is open; 0: none.
    told_of
        The offer that `answers` are about: the one that is open, or was last.
    is_confirmed
        It will be applied, without anybody's doing.
    late
        What ranks say of offers that are not open here, of an agent before this one for instance; taken away by whoever
        tells of it.

    """

    def __init__(self, listener: TrainerListener) -> None:
        self.listener = listener
        self.ticket = 0
        self.told_of = 0
        self.is_confirmed = False
        self.late: list[tuple[int, TrainerAnswer]] = []
        self._offer: Offer | None = None
        self._why = ""
        self._attempt = 0
        self._whom: frozenset[int] = frozenset()
        self._answers: dict[int, TrainerAnswer] = {}
        self._heard_ns = 0
        self._next_report_ns = 0
        self._has_news = False
        self._asking: tuple[int, RecoveryQuestion] | None = None  # the newest question, and its attempt
        self._asked_until_ns: int | None = 0  # `None`: it came just now
        self._ended: deque[int] = deque(maxlen=MOST_ENDED)
        self._tokens: deque[int] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether a controller is about to say more."""
        return self._is_open or self._asking is not None

    @property
    def _is_open(self) -> bool:
        return self.ticket != 0 and not self.is_confirmed

    @property
    def attempts(self) -> frozenset[int]:
        """Of scripts that are here."""
        return frozenset(attempt for attempt, _ in self.listener.trainers)

    def world_size(self, attempt: int) -> int:
        """How many ranks the job has, as its scripts say; 0: not known here."""
        return max((one.world_size for one in self.listener.trainers.values() if one.attempt == attempt), default=0)

    def look(self, processes: Iterable[RankProcess]) -> bool:
        """Read what scripts say; whether there is news for the controller."""
        came, left = self.listener.look(processes)
        for trainer in self.listener.trainers.values():
            said, trainer.said = trainer.said, []
            for word in said:
                self._hear(trainer, word)
        for trainer in left:
            for word in trainer.said:
                self._hear(trainer, word)
            if trainer.attempt == self._attempt:
                self._note(trainer.rank, "absent", why=f"the script of rank {trainer.rank} has ended or hung up")
        for trainer in came:
            is_open = self._offer is not None and not self.is_confirmed
            if is_open and trainer.attempt == self._attempt and self._is_meant(trainer.rank):
                self._ask(trainer)
        return self._has_news or bool(self.late) or self._asked_until_ns is None

    def question(self, now_ns: int) -> tuple[int, RecoveryQuestion] | None:
        """What ranks want to know, with their attempt, where it is news; it is forgotten when they wait no more."""
        if self._asking is None:
            return None
        if self._asked_until_ns is None:
            self._asked_until_ns = now_ns + self._asking[1].within_ms * 1_000_000
            return self._asking
        if now_ns > self._asked_until_ns:
            self._asking = None
        return None

    def offer(
        self,
        what: Offer,
        why: str,
        attempt: int,
        processes: Iterable[RankProcess],
        now_ns: int,
        ranks: tuple[int, ...] = (),
    ) -> str:
        """Ask all scripts of an attempt, or those of some ranks; why it cannot be, else nothing."""
        if what.ticket == self.ticket:
            self._heard_ns = now_ns
            return ""
        if what.ticket in self._ended:
            return "it has ended here"
        if self.is_confirmed:
            return "another order waits for its step"
        self._end("another order was given")
        # Ranks that have lost one come to no step: what they are handed they have, and need no second word.
        if what.kind == RECOVERY and not self._opens(what.ticket):
            return "it was taken back here"
        logger.info("order %d, %s, is offered to the scripts, for: %s", what.ticket, what.kind, why)
        self._offer, self._why, self._attempt, self._heard_ns = what, why, attempt, now_ns
        self._whom = frozenset(ranks)
        self.ticket = self.told_of = what.ticket
        self._answers, self._has_news = {}, True
        for process in processes:
            if process.attempt == attempt and self._is_meant(process.rank):
                self._answers[process.rank] = TrainerAnswer(
                    rank=process.rank,
                    state="absent",
                    why=f"the script of rank {process.rank} takes no orders (pacehound.trainer)",
                )
        for trainer in list(self.listener.trainers.values()):
            if trainer.attempt == attempt and self._is_meant(trainer.rank):
                self._ask(trainer)
        return ""

    def apply(self, what: Apply, now_ns: int) -> str:
        """Tell them the step; why it cannot be, else nothing."""
        if what.ticket != self.ticket:
            return "there is no such offer here"
        self._heard_ns = now_ns
        if self.is_confirmed:
            return ""
        if not self._opens(what.ticket):
            return "it was taken back here"
        for rank, answer in self._answers.items():
            if answer.state == "able" and (trainer := self.listener.trainers.get((self._attempt, rank))) is not None:
                self.listener.say(trainer, say="apply", ticket=what.ticket, step=what.step)
        self.listener.ring()
        return ""

    def confirm(self, what: Confirm) -> str:
        """All ranks of the job are armed: it stands; why it does not, else nothing."""
        if what.ticket != self.ticket:
            return "there is no such offer here"
        if self.is_confirmed:
            return ""
        waiting = [rank for rank, answer in self._answers.items() if answer.state != "armed"]
        if waiting or not Token(os.fspath(self.listener.folder), what.ticket).confirm():
            self._end("it could not be confirmed")
            return f"rank {waiting[0]} is not armed" if waiting else "a rank had come to the step before"
        self.is_confirmed = True
        logger.info("order %d is confirmed", what.ticket)
        for rank in self._answers:
            self._note(rank, "confirmed")
        return ""

    def withdraw(self, what: Withdraw) -> str:
        """Take it back; why that cannot be, else nothing."""
        if what.ticket != self.ticket:
            return "there is no such offer here"
        if not Token(os.fspath(self.listener.folder), what.ticket).withdraw():
            return "a rank has come to its step, and applies it"
        self._end("it was withdrawn")
        return ""

    def step(self, now_ns: int) -> tuple[TrainerAnswer, ...]:
        """End what nobody renews; what the controller is to hear now, else nothing."""
        if self._is_open and now_ns - self._heard_ns > LEASE_NS:
            self._end(_SILENT)
        is_due = self._is_open and now_ns >= self._next_report_ns
        if not (self._has_news or is_due):
            return ()
        self._has_news, self._next_report_ns = False, now_ns + REPORT_NS
        answers = self.answers()
        if self.ticket and all(answer.state in _FINAL for answer in answers):
            self._forget()
        return answers

    def answers(self) -> tuple[TrainerAnswer, ...]:
        """Where each rank is with the offer that is open, or was last."""
        return tuple(self._answers[rank] for rank in sorted(self._answers))

    def close(self) -> None:
        """The agent leaves: what is not confirmed is not applied, what is stands."""
        if not self.is_confirmed:
            self._end(_SILENT)
        self.listener.close()

    def _is_meant(self, rank: int) -> bool:
        return not self._whom or rank in self._whom

    def _opens(self, ticket: int) -> bool:
        """Whether its token is there, made now or before."""
        if ticket not in self._tokens:
            if not Token(os.fspath(self.listener.folder), ticket).make():
                return False
            self._tokens.append(ticket)
            if len(self._tokens) > MOST_ENDED:
                Token(os.fspath(self.listener.folder), self._tokens.popleft()).remove()
        return True

    def _hear_question(self, trainer: Trainer, word: dict[str, Any]) -> None:
        """Ranks that ask the same are told of together; another question takes the place of one before."""
        digest, payload = str(word.get("digest", "")), str(word.get("payload", ""))
        survivors, within_ms = word.get("survivors"), word.get("within_ms")
        if not isinstance(survivors, list) or not isinstance(within_ms, int) or len(payload) > _MOST_QUESTION:
            return
        if not survivors or not all(isinstance(rank, int) and 0 <= rank < MOST_WORLD for rank in survivors):
            return
        if len(survivors) > MOST_RANKS or _DIGEST.fullmatch(digest) is None:
            return
        ranks = {trainer.rank}
        within_ms = min(max(within_ms, 0), MOST_WITHIN_MS)
        if self._asking is not None and (self._asking[0], self._asking[1].digest) == (trainer.attempt, digest):
            ranks |= set(self._asking[1].ranks)
        question = RecoveryQuestion(
            digest=digest,
            survivors=tuple(survivors),
            ranks=tuple(sorted(ranks)),
            payload=payload,
            within_ms=within_ms,
        )
        self._asking, self._asked_until_ns = (trainer.attempt, question), None

    def _ask(self, trainer: Trainer) -> None:
        assert self._offer is not None
        self._answers[trainer.rank] = TrainerAnswer(
            rank=trainer.rank,
            state="asked",
            agrees_every=trainer.agrees_every,
            micro_batches=trainer.micro_batches,
            replicas=trainer.replicas,
            stages=trainer.stages,
        )
        self._has_news = True
        offer = self._offer
        self.listener.say(
            trainer, say="offer", ticket=offer.ticket, kind=offer.kind, payload=offer.payload, why=self._why
        )
        self.listener.ring()

    def _hear(self, trainer: Trainer, word: dict[str, Any]) -> None:
        said, ticket, step = word.get("say"), word.get("ticket"), word.get("step")
        if said == "lost":
            self._hear_question(trainer, word)
            return
        if not (isinstance(said, str) and said in _SAID and isinstance(ticket, int) and isinstance(step, int)):
            return
        if not (0 < ticket < 1 << 63 and -1 <= step < 1 << 62):
            return
        if ticket != self.ticket or trainer.attempt != self._attempt:
            if said in ("applied", "kept") and ticket != self.told_of and len(self.late) < MOST_ENDED:
                why = str(word.get("why", ""))[:MOST_WHY]
                self.late.append((ticket, TrainerAnswer(rank=trainer.rank, state=_SAID[said], step=step, why=why)))
            return
        if said in ("able", "armed"):
            per_s = word.get("per_s")
            per_s = float(per_s) if isinstance(per_s, (int, float)) and 0.0 <= per_s < _MOST_PER_S else 0.0
            known = self._answers.get(trainer.rank)
            if known is not None and known.state == said:
                self._answers[trainer.rank] = replace(known, step=step, per_s=per_s)
            elif known is not None and known.state in ("asked", "able"):
                self._note(trainer.rank, _SAID[said], step=step, per_s=per_s)
        else:
            self._note(trainer.rank, _SAID[said], step=step, why=str(word.get("why", ""))[:MOST_WHY])
            if said == "applied":
                logger.info("rank %d has applied order %s at step %d", trainer.rank, ticket, step)

    def _note(self, rank: int, state: TrainerState, **said: Any) -> None:
        known = self._answers.get(rank)
        has_come_back = known is not None and known.state == "absent" and state in ("applied", "kept")
        if known is not None and (known.state not in _FINAL or has_come_back):
            self._answers[rank] = replace(known, state=state, **said)
            self._has_news = True

    def _end(self, why: str) -> None:
        """Of what is not confirmed: its token first, then the scripts are told, and the controller."""
        if not self.ticket:
            return
        if self.ticket in self._tokens:
            Token(os.fspath(self.listener.folder), self.ticket).withdraw()
        logger.info("order %d is taken back: %s", self.ticket, why)
        for trainer in self.listener.trainers.values():
            if trainer.attempt == self._attempt:
                self.listener.say(trainer, say="withdraw", ticket=self.ticket, why=why)
        self.listener.ring()
        for rank in self._answers:
            self._note(rank, "kept", why=why)
        self._forget()

    def _forget(self) -> None:
        """It is over here. Its token stays: a rank that has hung up asks for it yet."""
        if self.ticket:
            self._ended.append(self.ticket)
        self.ticket, self.is_confirmed, self._offer = 0, False, None
