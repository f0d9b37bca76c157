"""A folder under the head's data that has what was written down of restarts, and how the site's commands go.

`id` names it; `records` has the decisions with a `SiteStep`, one file each, until the restart is long over; `runs` has
a folder for each run (`actuators.run_once`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actuators import run_once
from actuators.acting.site import Ran, Seen
from actuators.run_once import BEGUN, COMMAND, ENDED, LOCK, SAID, write_durably
from actuators.thresholds import COMMAND_WITHIN_S, RECORDS_KEPT_S
from pacehound.model.events import Decision
from pacehound.model.evidence import read_json
from pacehound.runtime.locked_folder import private_folder

logger = logging.getLogger(__name__)

NAME = "site"
_SAID_BYTES = 500


class SiteFolder:
    """The folder of one head, or one worker.

    Parameters
    ----------
    folder
        Made when something is written first.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runners: list[subprocess.Popen[bytes]] = []

    @property
    def name(self) -> str:
        """Its own, wherever it is mounted; drawn when it is asked first."""
        path = self._made() / "id"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text(encoding="ascii")
        drawn = self._folder / f".id.{secrets.token_hex(8)}"
        drawn.write_text(secrets.token_hex(8), encoding="ascii")
        with contextlib.suppress(FileExistsError):
            os.link(drawn, path)  # whoever came first has decided
        drawn.unlink()
        return path.read_text(encoding="ascii")

    def note(self, decision: Decision) -> None:
        """Write it down; `OSError` where that cannot be."""
        write_durably(self._made("records") / decision.identity(), msgspec.json.encode(decision).decode())

    def noted(self) -> list[Decision]:
        """What was written down, the oldest first; what has long been over is removed."""
        found: list[tuple[Decision, Path]] = []
        for path in sorted((self._folder / "records").glob("[0-9a-f]*")):
            try:
                found.append((read_json(path.read_bytes(), Decision), path))
            except (msgspec.DecodeError, OSError) as error:
                logger.warning("what was written down of a restart cannot be read: %s: %s", path, error)
        old_ns = time.time_ns() - round(RECORDS_KEPT_S * 1e9)
        over = {
            one.site.restart: one.time_ns < old_ns
            for one, _ in found
            if one.site is not None and one.site.step == "over"
        }
        kept: list[Decision] = []
        for one, path in found:
            restart = one.identity() if one.site is None or not one.site.restart else one.site.restart
            if over.get(restart, False):
                path.unlink(missing_ok=True)
            else:
                kept.append(one)
        self._remove_old_runs(old_ns)
        return sorted(kept, key=lambda one: (one.time_ns, one.number))

    def begin(self, run: str, words: Sequence[str]) -> None:
        """Have a process of its own run it, unless somebody has; `OSError` where that cannot be."""
        self._runners = [one for one in self._runners if one.poll() is None]
        folder = self._made("runs", run)
        command = {"words": list(words), "within_s": COMMAND_WITHIN_S}
        if not (folder / COMMAND).exists():
            write_durably(folder / COMMAND, json.dumps(command))
        runner = subprocess.Popen(
            [sys.executable, "-I", run_once.__file__, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._runners.append(runner)

    def seen(self, run: str) -> Seen:
        """How it goes."""
        folder = self._folder / "runs" / run
        if not (folder / ENDED).exists():
            is_held = self._is_held(folder / LOCK)
            if not (folder / ENDED).exists():
                if not (folder / BEGUN).exists():
                    return "running" if is_held else "never begun"
                return "running" if is_held else "lost"
        said = b""
        with contextlib.suppress(OSError), (folder / SAID).open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _SAID_BYTES, 0))
            said = file.read()
        return Ran(status=int((folder / ENDED).read_text()), said=said.decode(errors="replace").strip())

    def _is_held(self, path: Path) -> bool:
        try:
            with path.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def _made(self, *names: str) -> Path:
        path = private_folder(self._folder)
        for name in names:
            path = private_folder(path / name)
        return path

    def _remove_old_runs(self, old_ns: int) -> None:
        for folder in (self._folder / "runs").glob("*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime_ns < old_ns and not self._is_held(folder / LOCK):
                    shutil.rmtree(folder, ignore_errors=True)
