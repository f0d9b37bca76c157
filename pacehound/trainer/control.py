"""One rank's side: what it says to an order, and when it hands it to the script.

`at_step` compares two numbers and returns, unless the agent has rung the bell, or an order is open. There is no thread:
nothing runs when the process forks, or ends. The agent may die and come back at any time; an order that was armed by
then is decided by its token (`pacehound.trainer.token`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pacehound.trainer.collecting import Collecting
from pacehound.trainer.line import AgentLine, note_failure
from pacehound.trainer.meeting import FOLDER, Bell
from pacehound.trainer.open_order import OpenOrder
from pacehound.trainer.order import COLLECT, PACE, Agree, Can, Order, interval_of, refusal
from pacehound.trainer.recovering import Awaited, Question, Recovery
from pacehound.trainer.token import Token

RECOVERY_WITHIN_S = 2.0
"""A head that lives answers in one; a recovery by itself takes about as long as this (docs/recovery.md)."""

_NEVER = sys.maxsize
_NOBODY: Any = (0,)
"""A bell that nobody rings."""


class Control:
    """What `pacehound.trainer.connect` gives; its parameters are explained there.

    Parameters
    ----------
    run_dir
        The run folder; empty: nobody listens.
    hello
        What it says of itself: `rank`, `world_size`, `attempt`, `micro_batches`.

    """

    def __init__(
        self,
        run_dir: str,
        kinds: Sequence[str] = (),
        *,
        can: Can | None = None,
        agree: Agree | None = None,
        agree_every: int = 1,
        hello: dict[str, int] | None = None,
    ) -> None:
        self._kinds, self._can = tuple(kinds), can
        self._agree, self._agree_every = agree, agree_every
        self._hello = {"kinds": self._kinds, "agrees_every": agree_every if agree else 0, **(hello or {})}
        self._run_dir, self._folder = run_dir, os.path.join(run_dir, FOLDER)
        self._pid = os.getpid()
        self._open: OpenOrder | None = None
        self._decided: dict[str, Any] | None = (
            None  # said again to an agent that comes after one that may not have read it
        )
        self._agent = AgentLine(run_dir, self._hello)
        self._words, self._heard = _NOBODY, 0
        self._point = 0 if agree else _NEVER  # the next step at which all ranks agree; 0: not known yet
        self._due = self._point
        self._collecting = Collecting()
        if run_dir and os.path.isdir(run_dir):
            try:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                self._words = Bell(self._folder).words
                _leave_in_children(self)
                self._agent.connect(None)
            except Exception as error:
                self._fail(error)

    def at_step(self, step: int) -> Order | None:
        """The order that the script is to apply before it does this step; nearly always `None`.

        Parameters
        ----------
        step
            Grows with each step of the training, and is the same on all ranks. Calls with the same one are a step too.

        """
        try:
            if step < self._due and self._words[0] == self._heard:
                return None
            step = int(step)
            self._collecting.at_step(step)
        except Exception as error:
            self._fail(error)
            return None
        if self._agree is None:
            ticket = self._before(step, may_apply=True)
            return self._after(step, is_decided=True, is_agreed=ticket != 0)
        may_apply = 0 < self._point <= step
        ticket = self._before(step, may_apply=may_apply)
        if step >= self._point:
            self._point = (step // self._agree_every + 1) * self._agree_every
        return self._after(step, is_decided=may_apply, is_agreed=may_apply and self._all_have(ticket))

    def recovery(
        self,
        survivors: Sequence[int],
        about: object,
        *,
        within_s: float = RECOVERY_WITHIN_S,
        agree: Agree | None = None,
    ) -> Recovery | None:
        """Which plan to go on with after ranks were lost; `None`: nobody orders or recommends one, decide yourself.

        All survivors call it, with the same `survivors` and `about`. It waits, until the deadline at the latest, and
        not at all where nobody listens. What is ordered, all survivors get, or none uses it.

        Parameters
        ----------
        survivors
            The ranks that are left, by the numbers that they have connected with.
        about
            What is left of the job, and its costs, as JSON can say them (docs/trainer.md).
        within_s
            The deadline, from now on.
        agree
            As in `connect`, over the survivors: closes the last gap between hosts. It is called once by each of them.

        """
        found: Recovery | None = None
        try:
            if os.getpid() == self._pid and self._words is not _NOBODY:
                found = self._asks(Question(survivors, about), round(within_s * 1e9)).wait(time.monotonic_ns)
        except Exception as error:
            self._fail(error)
        if agree is None:
            return found
        ticket = found.ticket if found is not None and found.is_ordered else 0
        agreed = agree([ticket, -ticket])  # the only call that may raise: it is the script's
        if found is None or not found.is_ordered:
            return found
        return found if [int(one) for one in agreed] == [ticket, -ticket] else None

    def _asks(self, question: Question, within_ns: int) -> Awaited:
        """No order waits for a step any more: there will be none before the job has recovered."""
        if self._open is not None:
            ticket = self._open.order.ticket
            Token(self._folder, ticket).withdraw()
            self._open = None
            self._say(say="kept", ticket=ticket, step=-1, why="a rank was lost")
        if self._agent.lines is None:
            self._agent.connect(self._decided)
        self._heard, self._due = 0, 0  # what is still unread then is read at the next step
        now_ns = time.monotonic_ns()
        return Awaited(self._agent, self._folder, question, now_ns + within_ns, now_ns)

    def close(self) -> None:
        """Take no more orders; what was armed is taken back, where no rank here has applied it.

        Where ranks agree, `at_step` goes on to call their all-reduce: the others count on it.
        """
        with contextlib.suppress(Exception):
            self._leave("its script takes no more orders")

    def _all_have(self, ticket: int) -> bool:
        """Whether all ranks have the same order to be applied now, by the script's own all-reduce."""
        if self._agree is None:  # a forked process
            return False
        found = self._agree([ticket, -ticket])  # the only call that may raise: it is the script's
        try:
            return ticket != 0 and [int(one) for one in found] == [ticket, -ticket]
        except Exception as error:
            self._fail(error)
            return False

    def _before(self, step: int, *, may_apply: bool) -> int:
        """Hear the agent and answer; the ticket of the order that this host's ranks apply at this step, else 0."""
        try:
            if os.getpid() != self._pid:
                self._forget()
                return 0
            if self._words[0] != self._heard:
                self._heard = self._words[0]
                self._listen(step)
            if self._open is not None and (word := self._open.word(step, time.monotonic_ns())) is not None:
                self._say(**word)
            return self._ticket() if may_apply and self._is_due(step) else 0
        except Exception as error:
            self._fail(error)
            return 0

    def _after(self, step: int, *, is_decided: bool, is_agreed: bool) -> Order | None:
        """The order, where it is applied at this step; where that was decided and it is not, it is said."""
        found: Order | None = None
        try:
            if is_decided and self._open is not None and self._is_due(step):
                order = replace(self._open.order, step=step)
                self._open = None
                if is_agreed:
                    found = order
                    if order.kind == COLLECT:
                        found = None
                        self._collecting.set(interval_of(order.payload) or 0, step)
                    self._decided = {"say": "applied", "ticket": order.ticket, "step": step}
                else:
                    why = "not all ranks had it when they came to its step"
                    self._decided = {"say": "kept", "ticket": order.ticket, "step": step, "why": why}
                self._say(**self._decided)
        except Exception as error:
            self._fail(error)
        self._due = 0 if self._open is not None else min(self._point, self._collecting.due)
        return found

    def _is_due(self, step: int) -> bool:
        return self._open is not None and self._open.state == "armed" and step >= self._open.order.step

    def _ticket(self) -> int:
        """Of the open order, where the ranks of this host apply it."""
        assert self._open is not None
        ticket = self._open.order.ticket
        return ticket if Token(self._folder, ticket).seal() else 0

    def _listen(self, step: int) -> None:
        try:
            for word in self._agent.take():
                self._hear(word, step)
        except ConnectionError:
            self._hang_up()
            self._agent.connect(self._decided)

    def _hear(self, word: dict[str, Any], step: int) -> None:
        said, ticket = word.get("say"), int(word.get("ticket", 0))
        is_open = self._open is not None and self._open.order.ticket == ticket
        if said == "offer":
            self._consider(word, ticket, step)
        elif said == "apply" and is_open:
            self._arm(int(word["step"]), step)
        elif said == "withdraw" and is_open:
            assert self._open is not None
            if self._open.state != "armed" or Token(self._folder, ticket).is_withdrawn:
                self._open = None
                self._say(say="kept", ticket=ticket, step=step, why=str(word.get("why", "")))

    def _consider(self, word: dict[str, Any], ticket: int, step: int) -> None:
        """An offer: refused at once, or answered when it is known how fast this rank goes."""
        is_new = self._open is None or self._open.order.ticket != ticket
        if is_new and self._open is not None and self._open.state == "armed":
            why = f"it waits for step {self._open.order.step} to apply another order"
        elif is_new:
            order = Order(str(word["kind"]), json.loads(word["payload"]), str(word["why"]), -1, ticket)
            why = refusal(order, self._kinds, self._can)
            self._open = None if why else OpenOrder(order, "asked", time.monotonic_ns(), step)
        else:
            return
        if why:
            self._say(say="unable", ticket=ticket, step=step, why=why)

    def _arm(self, at_step: int, step: int) -> None:
        assert self._open is not None
        if self._open.state == "armed" or self._open.order.kind == PACE:
            return
        ticket = self._open.order.ticket
        if at_step <= step:
            # Its token decides for the other ranks here, and says no: this one has not come to the step with it.
            Token(self._folder, ticket).withdraw()
            self._open = None
            self._say(say="kept", ticket=ticket, step=step, why=f"it had passed step {at_step} by the time it was told")
            return
        self._open.order = replace(self._open.order, step=at_step)
        self._open.state = "armed"
        self._open.said_ns = 0

    def _say(self, **word: Any) -> None:
        try:
            self._agent.say(**word)
        except ConnectionError:
            self._hang_up()

    def _hang_up(self) -> None:
        """The agent has gone: what was not armed is nobody's any more; what was, its token decides."""
        self._agent.hang_up()
        if self._open is not None and self._open.state != "armed":
            self._open = None

    def _leave(self, why: str) -> None:
        if self._open is not None and self._open.state == "armed":
            Token(self._folder, self._open.order.ticket).withdraw()
        if self._open is not None:
            self._say(say="kept", ticket=self._open.order.ticket, step=-1, why=why)
        self._forget()

    def _forget(self) -> None:
        """From now on nobody listens. The other ranks still count on this one where they agree."""
        self._open = None
        self._collecting.set(0, 0)
        self._hang_up()
        self._words, self._heard = _NOBODY, 0
        if os.getpid() != self._pid:
            self._agree = None
        self._point = self._point if self._agree else _NEVER
        self._due = self._point

    def _fail(self, error: BaseException) -> None:
        """An error of ours, or of an argument: the script goes on without us, and it is noted for its user."""
        try:
            if os.getpid() != self._pid or not os.path.isdir(self._run_dir):
                self._forget()
                return
            self._leave(f"{type(error).__name__}: {error}")
            note_failure(self._run_dir, self._hello.get("rank"), error)
        except Exception:  # there is no place left to complain
            self._agent.lines = self._open = None
            self._words, self._heard, self._due = _NOBODY, 0, self._point


def _leave_in_children(control: Control) -> None:
    """A forked worker inherits everything, and must not speak for its rank."""
    known = weakref.ref(control)

    def after_fork() -> None:
        found = known()
        if found is not None:
            with contextlib.suppress(Exception):
                found._forget()

    os.register_at_fork(after_in_child=after_fork)
