"""Ranks that have lost one ask which plan to go on with, and all that use the answer use the same one.

They have no step to agree upon, and stand still: so this waits, until a deadline. An answer that is ordered has a token
(`pacehound.trainer.token`) from the moment on at which it is handed out; it is confirmed when all survivors have it,
and whoever comes to the deadline before that takes it back for all ranks of the host.
"""

from __future__ import annotations

import hashlib
import json
import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pacehound.trainer.line import AgentLine
from pacehound.trainer.order import RECOVERY
from pacehound.trainer.token import Token

LOOK_EVERY_S = 0.005
"""At the token and at what the agent says, while it is waited for; a look takes some microseconds."""

MOST_QUESTION_BYTES = 8_192
"""Of a question as JSON: as much as an order's payload (`pacehound.model.orders.MOST_PAYLOAD_BYTES`)."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was answered.

    Attributes
    ----------
    plan
        What JSON can say: `kind`, `stages`, `batches` and `holders`.
    why
        A sentence for people.
    is_ordered
        All survivors use it; else it is merely recommended, and the script decides as it would have.
    ticket
        Names it; the same on all ranks.

    """

    plan: Any
    why: str
    is_ordered: bool
    ticket: int


class Question:
    """As all survivors ask it, with the same words."""

    def __init__(self, survivors: Sequence[int], about: object) -> None:
        self.survivors = sorted(map(int, survivors))
        self.payload = json.dumps(about, separators=(",", ":"), sort_keys=True)
        if len(self.payload) > MOST_QUESTION_BYTES:
            raise ValueError(f"a question of {len(self.payload)} bytes; at most {MOST_QUESTION_BYTES}")
        said = json.dumps([self.survivors, self.payload]).encode()
        self.digest = hashlib.sha256(said).hexdigest()[:32]


class Awaited:
    """One question that is waited for; `look` is called again and again.

    Parameters
    ----------
    agent
        Where there is none, nobody is waited for.
    folder
        Of the tokens.
    question
        What is asked.
    until_ns, now_ns
        The deadline and the time, both monotonic.

    Attributes
    ----------
    found
        What is answered, once it is over; nothing where nobody does, or not all have it.

    """

    def __init__(self, agent: AgentLine, folder: str, question: Question, until_ns: int, now_ns: int) -> None:
        self.found: Recovery | None = None
        self._agent, self._folder = agent, folder
        self._question, self._until_ns = question, until_ns
        self._given: Recovery | None = None
        self._say(
            say="lost",
            digest=question.digest,
            survivors=question.survivors,
            payload=question.payload,
            within_ms=max(until_ns - now_ns, 0) // 1_000_000,
        )

    def look(self, now_ns: int) -> bool:
        """Whether it is over."""
        try:
            words = self._agent.take()
        except ConnectionError:
            self._agent.hang_up()
            words = []
        for word in words:
            if word.get("say") == "offer" and self._hear(word):
                return True
        if self._given is None:
            return self._agent.lines is None or now_ns >= self._until_ns
        token = Token(self._folder, self._given.ticket)
        if not token.is_decided and now_ns < self._until_ns:
            return False
        is_ours = token.seal()
        self.found = self._given if is_ours else None
        why = "" if is_ours else "not all survivors had it in time"
        self._say(say="applied" if is_ours else "kept", ticket=self._given.ticket, step=0, why=why)
        return True

    def wait(self, clock: Callable[[], int]) -> Recovery | None:
        """Until it is over; what is answered."""
        while not self.look(now_ns := clock()):
            readable = [] if self._agent.lines is None else [self._agent.lines.socket]
            select.select(readable, [], [], min((self._until_ns - now_ns) / 1e9, LOOK_EVERY_S))
        return self.found

    def _hear(self, word: dict[str, Any]) -> bool:
        """An offer; whether it is an answer that need not be waited for. What is withdrawn its token says."""
        ticket, body = int(word.get("ticket", 0)), json.loads(str(word.get("payload", "null")))
        if word.get("kind") != RECOVERY or not isinstance(body, dict) or body.get("digest") != self._question.digest:
            self._say(say="unable", ticket=ticket, step=0, why="a rank is lost: it comes to no step now")
            return False
        one = Recovery(body.get("plan"), str(word.get("why", "")), body.get("ordered") is True, ticket)
        if not one.is_ordered:
            self._say(say="kept", ticket=ticket, step=0, why="nobody orders it")
            self.found = one
            return True
        if self._given is None:
            self._given = one
            self._say(say="armed", ticket=ticket, step=0, per_s=0.0)
        return False

    def _say(self, **word: Any) -> None:
        """What is not heard was not said: the token decides."""
        try:
            self._agent.say(**word)
        except ConnectionError:
            self._agent.hang_up()
