"""Who of a job's ranks has answered, on which host, and who has not; pure."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.events.control import CommandResult, RankAnswer
from pacehound.model.evidence.phrases import ranks_words

_TOO_LATE = frozenset({"replayed", "expired", "out of order"})


def is_final(result: CommandResult) -> bool:
    """Whether a refusal says that it cannot be: what came too late, or once more, is said again while it is wanted.

    An agent that was killed hears from its successor's mouth what it had carried out, one without a processor for ten
    seconds what is over by then; whoever waits for its answer has a time limit.
    """
    return bool(result.refused) and result.refused not in _TOO_LATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a rank has said last, and on which host."""

    host: str
    answer: RankAnswer


class RollCall:
    """Answers, as they come.

    Attributes
    ----------
    ranks
        What each rank has said last.
    hosts
        When each agent was last heard, monotonic.
    rendezvous
        Where processes of each host can be met, as ADDRESS:PORT.
    refusals
        Who has refused what, and why.

    """

    def __init__(self) -> None:
        self.ranks: dict[int, Where] = {}
        self.hosts: dict[str, int] = {}
        self.rendezvous: dict[str, str] = {}
        self.refusals: list[str] = []
        self.world_size = 0

    def hear(self, result: CommandResult, now_ns: int) -> None:
        """Remember an answer."""
        if result.refused:
            self.refusals.append(f"{result.host}: {result.reason} ({result.refused})")
            return
        self.world_size = max(self.world_size, result.world_size)
        self.hosts[result.host] = now_ns
        if result.rendezvous:
            self.rendezvous[result.host] = result.rendezvous

    def note_ranks(self, result: CommandResult) -> None:
        """Where the host's ranks are."""
        for answer in result.ranks:
            self.ranks[answer.rank] = Where(host=result.host, answer=answer)

    @property
    def is_complete(self) -> bool:
        """Whether all ranks of the job have answered."""
        return self.world_size > 0 and len(self.ranks) >= self.world_size

    @property
    def hold_limit_ns(self) -> int | None:
        """For how long every rank may stand still; `None` where no rank has said it."""
        limits_ms = [where.answer.hold_limit_ms for where in self.ranks.values() if where.answer.hold_limit_ms]
        return min(limits_ms) * 1_000_000 if limits_ms else None

    def missing(self) -> str:
        """Who has not, in a sentence."""
        if not self.hosts:
            told = f" ({'; '.join(self.refusals[:3])})" if self.refusals else ""
            return f"no agent of this job has answered{told}"
        missing = sorted(set(range(self.world_size)) - set(self.ranks))
        return (
            f"{ranks_words(missing)} of {self.world_size} are at no agent that has answered" if missing else "looking"
        )
