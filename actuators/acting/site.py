"""What a site has to say for a restart: how its scheduler stops a job, and starts it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

CommandName = Literal["stop", "start", "drain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command has ended: its exit status, and the last that it said."""

    status: int
    said: str = ""


class Site(Protocol):
    """Runs one command at a time."""

    def has(self, name: CommandName) -> bool:
        """Whether the site has written one."""
        ...

    def begin(self, name: CommandName, values: Mapping[str, str]) -> str:
        """Run it with these in the place of `{job}`, `{hosts}` …; the command, as it is run."""
        ...

    def ran(self) -> Ran | None:
        """How it has ended; `None` while it runs."""
        ...
