"""What a site has written into its settings, run without a shell, and what was written down of it."""

from __future__ import annotations

import logging
import re
import secrets
import shlex
import socket
from collections.abc import Callable, Iterable, Mapping

from actuators.acting.commanding import who_else
from actuators.acting.site import CommandName, Origin, Ran, Seen
from actuators.run_once import NOT_RUN
from actuators.site_folder import SiteFolder
from pacehound.errors import InvalidSetting, PacehoundError
from pacehound.model.events import Decision
from pacehound.settings import ActuatorSettings

logger = logging.getLogger(__name__)

Log = Callable[[str], Iterable[Decision]]
"""What was decided about a job, in the order in which everybody sees it."""


class SiteCommands:
    """The commands of the settings.

    Parameters
    ----------
    settings
        Which they are.
    folder
        Where it is seen how they go; without one there are none.
    log
        Where several may have the same run begun: the log in which one of them is the first.

    Raises
    ------
    InvalidSetting
        One of them cannot be taken apart into words.

    """

    def __init__(self, settings: ActuatorSettings, folder: SiteFolder | None = None, log: Log | None = None) -> None:
        texts: dict[CommandName, str] = {
            "stop": settings.stop_command,
            "start": settings.start_command,
            "drain": settings.drain_command,
        }
        self._words: dict[CommandName, list[str]] = {}
        for name, text in texts.items():
            try:
                self._words[name] = shlex.split(text)
            except ValueError as error:
                raise InvalidSetting(f"actuators.{name}_command={text!r}: {error}") from error
        self._folder, self._log = folder, log
        self._by = secrets.token_hex(8)
        self._failed: dict[str, Ran] = {}

    @property
    def origin(self) -> Origin:
        """Who asks."""
        return Origin(by=self._by, where="" if self._folder is None else self._folder.name, host=socket.gethostname())

    def has(self, name: CommandName) -> bool:
        """Whether the site has written one."""
        return bool(self._words[name])

    def note(self, decision: Decision) -> None:
        """Keep what has a `SiteStep`; `OSError` where that cannot be."""
        if self._folder is not None:
            self._folder.note(decision)

    def why_not(self, claim: Decision) -> str:
        """Why somebody else does what is claimed here; empty where nobody does."""
        if self._log is None:
            return ""
        try:
            return who_else(self._log(claim.job), claim)
        except PacehoundError as error:
            return f"it cannot be read whether somebody else runs it: {error}"

    def words(self, name: CommandName, values: Mapping[str, str]) -> str:
        """The command, as it is run."""
        return shlex.join(self._filled(name, values))

    def begin(self, run: str, name: CommandName, values: Mapping[str, str]) -> None:
        """Run it, unless this run was begun before; a word stays a word, whatever is put into it."""
        logger.warning("job %s: the %s command is run: %s", values.get("job", ""), name, self.words(name, values))
        self._failed.pop(run, None)
        try:
            if self._folder is None:
                raise OSError(0, "there is no folder to run it from")
            self._folder.begin(run, self._filled(name, values))
        except OSError as error:
            self._failed[run] = Ran(status=NOT_RUN, said=f"it could not be begun: {error.strerror}")

    def seen(self, run: str) -> Seen:
        """How it goes."""
        if run in self._failed:
            return self._failed[run]
        return "never begun" if self._folder is None else self._folder.seen(run)

    def _filled(self, name: CommandName, values: Mapping[str, str]) -> list[str]:
        """A value that looks like a name of another is left as it is."""
        return [re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), word) for word in self._words[name]]
