"""Who is to blame for what befell a job, and what a source shows of it: the answers that verdicts are held against."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.events import Cause, VerdictWord


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseTruth:
    """The cause of one job's trouble, and whether its source shows enough to name it.

    Attributes
    ----------
    cause, culprits, links
        What happened; `None` and empty where nobody is to blame. Links have no direction.
    must_name
        The source shows enough: a finding has this cause, and exactly these culprits and links.
    words
        Verdicts that such a finding may have.

    """

    cause: Cause | None = None
    culprits: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    must_name: bool = False
    words: frozenset[VerdictWord] = frozenset({"unknown", "suspected"})

    def __post_init__(self) -> None:
        if self.must_name and (self.cause is None or not (self.culprits or self.links)):
            raise ValueError("what must be named has a cause and somebody, or a link, to name")
