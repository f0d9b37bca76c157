"""What a site has to say for a restart: how its scheduler stops a job, and starts it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pacehound.model.events import Decision

CommandName = Literal["stop", "start", "drain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command has ended: its exit status, and the last that it said."""

    status: int
    said: str = ""


Seen = Ran | Literal["never begun", "running", "lost"]
"""What is known of a run. `lost`: it was begun, and whoever ran it has gone before it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who has commands run.

    Attributes
    ----------
    by
        Nobody else has this name, nor has the same process when it is started again.
    where, host
        The folder that shows how they go, by a name of its own, and the host that it is on.

    """

    by: str = ""
    where: str = ""
    host: str = ""


class Site(Protocol):
    """Runs commands, each run at most once, whoever asks for it how often."""

    @property
    def origin(self) -> Origin:
        """Who asks."""
        ...

    def has(self, name: CommandName) -> bool:
        """Whether the site has written one."""
        ...

    def note(self, decision: Decision) -> None:
        """Keep what has a `SiteStep` where whoever comes after finds it, before anything follows from it."""
        ...

    def why_not(self, claim: Decision) -> str:
        """Why somebody else does what is claimed here, as far as is known; empty where nobody does."""
        ...

    def words(self, name: CommandName, values: Mapping[str, str]) -> str:
        """The command with these in the place of `{job}`, `{hosts}` …, as it is run."""
        ...

    def begin(self, run: str, name: CommandName, values: Mapping[str, str]) -> None:
        """Run it, unless this run was begun before."""
        ...

    def seen(self, run: str) -> Seen:
        """How it goes."""
        ...
