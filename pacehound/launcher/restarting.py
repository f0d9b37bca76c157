"""A process of ours that is started again when it dies."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pacehound.runtime.backoff import Backoff
from pacehound.runtime.priority import give_way

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.5, 30.0
_STEADY_AFTER_S = 60.0
_OFTEN = 5
"""Deaths in a row of which it is said that nothing comes of it: some ten seconds after the first one."""
_NICENESS = 5
_END_WITHIN_S = 1.0
_LOG_MAX_BYTES = 1024 * 1024


class RestartingProcess:
    """One helper in a session of its own, so that Ctrl-C does not reach it; it yields the processor to the training.

    Parameters
    ----------
    name
        For what is said about it.
    argv, environ, descriptors
        How to start it; `descriptors` are the open files it inherits, every other one is closed.
    log
        Its standard output and error; begun anew when it has grown large.
    say
        Told of the first death in a row, and of the one that makes them many. A row ends when it has run for a minute.

    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environ: Mapping[str, str],
        descriptors: Iterable[int],
        log: Path,
        say: Callable[[str], object],
    ) -> None:
        self.name = name
        self._argv, self._environ, self._descriptors = list(argv), dict(environ), tuple(descriptors)
        self._log = log
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._not_before_s = 0.0
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        self._has_died = False
        self._in_a_row = 0  # how often it has died since it last ran for a minute

    @property
    def is_alive(self) -> bool:
        """It runs now."""
        return self._process is not None and self._process.poll() is None

    @property
    def has_died(self) -> bool:
        """It has ended by itself at least once."""
        return self._has_died

    @property
    def exit_code(self) -> int | None:
        """How it left (negative: a signal); `None` while it runs or before its start."""
        return None if self._process is None else self._process.poll()

    def start(self, now_s: float) -> None:
        """Start it (an `OSError` reaches the caller)."""
        mode = "ab" if self._log.exists() and self._log.stat().st_size < _LOG_MAX_BYTES else "wb"
        with self._log.open(mode) as log:
            self._process = subprocess.Popen(
                self._argv,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self._descriptors,
                start_new_session=True,
                cwd="/",
                preexec_fn=_lower_priority,
            )
        self._started_s = now_s

    def ensure_running(self, now_s: float) -> None:
        """Start it again if it has ended, not too often."""
        if self.is_alive:
            return
        if self._process is not None:
            if now_s - self._started_s > _STEADY_AFTER_S:
                self._backoff.reset()
                self._in_a_row = 0
            self._has_died = True
            self._in_a_row += 1
            if self._in_a_row == 1:
                self._say(f"the {self.name} ended ({self.exit_words()}); starting it again")
            elif self._in_a_row == _OFTEN:
                self._say(
                    f"the {self.name} has ended {_OFTEN} times in a row ({self.exit_words()}); it is tried again each "
                    f"{_LONGEST_RETRY_S:g} s. While it is away nothing is said about the command, which runs on; "
                    "`pacehound doctor` tells what may be missing"
                )
            self._process = None
            self._not_before_s = now_s + self._backoff.next_s()
        if now_s >= self._not_before_s:
            try:
                self.start(now_s)
            except OSError:
                self._not_before_s = now_s + self._backoff.next_s()

    def stop(self) -> None:
        """Tell it to end; it is not waited for."""
        if self.is_alive and self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def end_now(self) -> None:
        """Tell it to end and make sure that it has."""
        if self._process is None:
            return
        self.stop()
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def exit_words(self) -> str:
        """How it left and the last line it wrote."""
        code = self.exit_code
        how = "running" if code is None else f"exit {code}" if code >= 0 else f"signal {-code}"
        try:
            lines = self._log.read_text(errors="replace")[-2000:].strip().splitlines()
        except OSError:
            lines = []
        return f"{how}: {lines[-1][:160]}" if lines and code else how


def _lower_priority() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    give_way(_NICENESS)
