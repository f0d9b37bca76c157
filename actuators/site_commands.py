"""Runs what a site has written into its settings, without a shell, one command at a time."""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import IO

from actuators.acting.site import CommandName, Ran
from actuators.thresholds import COMMAND_WITHIN_S
from pacehound.errors import InvalidSetting
from pacehound.settings import ActuatorSettings

logger = logging.getLogger(__name__)

_SAID_BYTES = 500


class SiteCommands:
    """The commands of the settings.

    Raises
    ------
    InvalidSetting
        One of them cannot be taken apart into words.

    """

    def __init__(self, settings: ActuatorSettings) -> None:
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
        self._process: subprocess.Popen[bytes] | None = None
        self._failed: Ran | None = None
        self._output: IO[bytes] | None = None
        self._until_s = 0.0

    def has(self, name: CommandName) -> bool:
        """Whether the site has written one."""
        return bool(self._words[name])

    def begin(self, name: CommandName, values: Mapping[str, str]) -> str:
        """Run it; a word stays a word, whatever is put into it."""
        words = [_filled(word, values) for word in self._words[name]]
        said = shlex.join(words)
        logger.warning("job %s: the %s command is run: %s", values.get("job", ""), name, said)
        self._failed, self._until_s = None, time.monotonic() + COMMAND_WITHIN_S
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 -- it is read when the command has ended
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True
            )
        except OSError as error:
            self._failed = Ran(status=127, said=f"{words[0]}: {error.strerror}")
        return said

    def ran(self) -> Ran | None:
        """How it has ended; what takes too long is ended."""
        if self._failed is not None:
            return self._failed
        if self._process is None or self._output is None:
            return Ran(status=127, said="nothing was run")
        status = self._process.poll()
        if status is None and time.monotonic() < self._until_s:
            return None
        if status is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            status = 124
        self._output.seek(max(self._output.seek(0, os.SEEK_END) - _SAID_BYTES, 0))
        said = self._output.read().decode(errors="replace").strip()
        self._output.close()
        self._process = self._output = None
        self._failed = Ran(status=status, said=said)
        return self._failed


def _filled(word: str, values: Mapping[str, str]) -> str:
    """A value that looks like a name of another is left as it is."""
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), word)
