"""The command itself: started as it would have been without us, signalled as if we were not there."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pacehound.errors import InvalidInput

# Blocked here and passed on. Faults of this process itself and job control by the terminal driver stay as they are.
_OURS = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
    signal.SIGPIPE,
    signal.SIGTTIN,
    signal.SIGTTOU,
}
PASSED_ON = frozenset(signal.valid_signals() - _OURS)
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})

_SI_USER = 0  # si_code > 0: from the kernel, such as a terminal's Ctrl-C


@dataclass(frozen=True, slots=True)
class Status:
    """How a command left: an exit code, or the signal that killed it."""

    exit_code: int | None
    signal_number: int | None

    @classmethod
    def of_wait(cls, wait_status: int) -> Status:
        """From what `os.waitpid` returned."""
        code = os.waitstatus_to_exitcode(wait_status)
        return cls(code, None) if code >= 0 else cls(None, -code)


class Command:
    """A running command in the foreground process group of this process.

    Standard streams and every open descriptor that its caller handed to us are inherited untouched; so are the
    signal mask and ignored signals.

    Raises
    ------
    InvalidInput
        It cannot be started; the message says why, `exit_status` what a shell would return (127, 126).

    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], mask: Iterable[int]) -> None:
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                environ,
                setsigmask=mask,
                # Python ignores these for itself.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError as error:
            raise CannotStart(argv[0], error) from error

    def poll(self) -> Status | None:
        """How it left, or `None` while it runs."""
        try:
            pid, wait_status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return Status(1, None)  # somebody reaped it: SIGCHLD is ignored in this process
        return Status.of_wait(wait_status) if pid else None

    def pass_on(self, number: int, code: int) -> None:
        """Deliver a signal that reached us, unless the terminal has delivered it to the whole group already."""
        if code <= _SI_USER:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass
        if number == signal.SIGTSTP:
            # Whoever waits for us must see us stop, too; SIGCONT wakes us here.
            os.kill(os.getpid(), signal.SIGSTOP)


class CannotStart(InvalidInput):
    """The command cannot be started."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"cannot start {name!r}: {error.strerror}")
        self.exit_status = 127 if isinstance(error, FileNotFoundError) else 126


def leave_like(status: Status) -> int:
    """The exit status that repeats how the command left; where a signal killed it, that signal kills us here."""
    if status.signal_number is None:
        return status.exit_code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file, the command's, is enough
    if status.signal_number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(status.signal_number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [status.signal_number])
    os.kill(os.getpid(), status.signal_number)
    return 128 + status.signal_number
