"""How an agent says what it has to say: apart or together, in full or in short, and behind which word of its host.

What it says is decided elsewhere (`node_agent.py`), and when as well (`flush_times.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collector.agent.going_on import GoingOn
from collector.agent.host_words import HostWords
from collector.agent.outbox import Outgoing
from collector.agent.said_in_full import SaidInFull
from collector.agent.saying import (
    outgoing,
    outgoing_at_once,
    outgoing_iteration,
    outgoing_vitals,
    places_of,
)
from collector.calls.assembler import CallAssembler
from pacehound.model.events import AgentCost, HostEvidence, HostSample, HostVitals, Progress
from pacehound.model.flushes import HostCall
from pacehound.model.shards import Place
from pacehound.settings import MessageForm


@dataclass(frozen=True, slots=True)
class TimeGoesOn:
    """What lets the time of a host go on.

    Attributes
    ----------
    samples
        Of its processes, before its promises.
    calls
        What is told of calls, and how far that is.
    last_samples
        Those that say that the job has ended here, behind everything else.
    is_short
        The promises say no more than up to when.
    speaks_of_processes
        They speak for the processes, too.

    """

    samples: list[Outgoing]
    calls: list[Outgoing]
    last_samples: list[Outgoing]
    is_short: bool
    speaks_of_processes: bool


class Speaker:
    """What was said last, and the form in which the next is.

    Parameters
    ----------
    assembler
        Knows the communicators.
    form, sharded_from_ranks, has_homes
        As this run's agent began (`AgentState`): the streams of a job do not change their keys.

    """

    def __init__(
        self, assembler: CallAssembler, form: MessageForm, sharded_from_ranks: int, *, has_homes: bool
    ) -> None:
        self._assembler = assembler
        self.form = form
        self.sharded_from_ranks = sharded_from_ranks
        self.has_homes = has_homes
        self._in_full = SaidInFull()
        self._going_on = GoingOn()
        self._words = HostWords()
        self._n_refused = 0

    def kept_calls(self, events: Iterable[HostCall]) -> list[Outgoing]:
        """Calls behind digests, which nobody misses."""
        return outgoing_at_once(events, self._places(), is_detail=True)

    def seen(self, event: HostVitals | HostEvidence, own: AgentCost) -> Outgoing:
        """What was seen or measured besides calls; of what hardware is like this agent's own cost is a part.

        Raises
        ------
        ValueError
            It cannot be said.

        """
        word = self._seen(event, own)
        self._words.seen(event)
        return word

    def operations_are_told(self) -> None:
        """Their times are their own: a sample has to stand behind them."""
        self._words.forget_samples()

    def are_refused(self, n_refused: int) -> None:
        """So many were, so far: a word behind which promises would speak may be among them."""
        if n_refused != self._n_refused:
            self._words.forget_samples()
        self._n_refused = n_refused

    def are_gone(self) -> None:
        """Messages had to make room: what is said in short relies on them, perhaps."""
        self._in_full = SaidInFull()
        self._going_on = GoingOn()
        self._words.forget_samples()

    def time_goes_on(
        self,
        settled: Sequence[HostCall],
        promised: Sequence[Progress],
        samples: Sequence[HostSample],
        *,
        short_for_ns: int,
        held_ns: int,
        speaks_of_processes: bool,
    ) -> TimeGoesOn:
        """What is said of processes, of calls, and of how far these are told.

        Parameters
        ----------
        settled, promised, samples
            All that there is.
        short_for_ns
            For how long promises hold that say no more than up to when; 0: they say all.
        held_ns
            For how long those hold that say all.
        speaks_of_processes
            They may speak for processes.

        """
        is_short = short_for_ns > 0 and self._in_full.says_all(settled, promised)
        quiet_ns = short_for_ns if is_short else 0
        is_together = self.form is MessageForm.TOGETHER
        spoken_for = {one.attempt for one in promised} if speaks_of_processes and is_together else set()
        unchanged = [sample for sample in samples if sample.attempt in spoken_for and not sample.closed]
        said = self._words.changed(unchanged, quiet_ns)
        said += self._words.in_full(sample for sample in samples if sample not in unchanged)
        behind_ns = {one.attempt: self._words.last_ns(one.attempt) for one in unchanged}
        if is_short:
            calls = outgoing_iteration(settled, promised, self._places(), quiet_ns=quiet_ns, behind_ns=behind_ns)
        else:
            calls = self._calls(settled, promised, behind_ns, held_ns)
            self._in_full.note(promised)
        before, last = ([outgoing(one) for one in said if one.closed == is_last] for is_last in (False, True))
        return TimeGoesOn(before, calls, last, is_short, speaks_of_processes=bool(behind_ns))

    def _calls(
        self, settled: Sequence[HostCall], promised: Sequence[Progress], behind_ns: Mapping[int, int], quiet_ns: int
    ) -> list[Outgoing]:
        if self.form is MessageForm.APART:
            return [outgoing(event) for event in [*settled, *promised]]
        places = self._places()
        said, in_short = self._going_on.parted(promised, places)
        return outgoing_at_once([*settled, *said], places, behind_ns, in_short=in_short, quiet_ns=quiet_ns)

    def _seen(self, event: HostVitals | HostEvidence, own: AgentCost) -> Outgoing:
        """Hosts of a large job, which say little else, tell what their hardware is like beside their iterations."""
        if not isinstance(event, HostVitals):
            return outgoing(event)
        vitals = replace(event, agent=own)
        if not self._assembler.tells_iterations or self.form is MessageForm.APART:
            return outgoing(vitals)
        worlds = [one.id for one in self._assembler.communicators if one.is_world and one.attempt == event.attempt]
        return outgoing_vitals(vitals, self._places()[worlds[0]]) if worlds else outgoing(vitals)

    def _places(self) -> dict[str, Place]:
        return places_of(self._assembler.communicators, self.sharded_from_ranks, has_homes=self.has_homes)
