"""One rank's line to its host's agent: there is one, or there is not, and neither is an error."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any

from pacehound.trainer.meeting import FOLDER, Lines, address, credentials


class AgentLine:
    """Says hello whenever it is connected, and forgets the agent that has gone.

    Parameters
    ----------
    run_dir
        The run folder.
    hello
        What the rank says of itself.

    Attributes
    ----------
    lines
        The connection; `None` while there is none.

    """

    def __init__(self, run_dir: str, hello: dict[str, Any]) -> None:
        self.lines: Lines | None = None
        self._folder, self._hello = os.path.join(run_dir, FOLDER), hello

    def connect(self, decided: dict[str, Any] | None) -> None:
        """Say hello to the agent, where there is one of this user, and once more what was decided."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        lines = Lines(connection)
        try:
            with address(self._folder) as where:
                connection.connect(where)
            if credentials(connection).uid != os.geteuid():
                raise ConnectionError("it is another user's")
            lines.say(say="hello", **self._hello)
            if decided is not None:
                lines.say(**decided)
        except OSError:  # nobody listens; or not now: whoever begins to rings the bell
            lines.close()
            return
        self.lines = lines

    def take(self) -> list[dict[str, Any]]:
        """What the agent says; `ConnectionError` where there is none, or it has gone."""
        if self.lines is None:
            raise ConnectionError("nobody listens")
        return self.lines.take()

    def say(self, **word: Any) -> None:
        """Tell the agent, where there is one; `ConnectionError` where it has gone."""
        if self.lines is not None:
            self.lines.say(**word)

    def hang_up(self) -> None:
        """There is no agent any more."""
        if self.lines is not None:
            self.lines.close()
            self.lines = None


def note_failure(run_dir: str, rank: object, error: BaseException) -> None:
    """Leave word of an error of ours, for the summary of the run."""
    folder = os.path.join(run_dir, "notes")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)  # of a run that is over no folder is made
    path = os.path.join(folder, f"trainer-{os.getpid()}.json")
    note = f"pacehound.trainer is switched off in rank {rank}: {type(error).__name__}: {error}"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "rank": rank, "notes": [note]}, file)
    os.replace(f"{path}.new", path)
