"""Runs the command with the watch beside it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pacehound.launcher.command import ENDING, PASSED_ON, Command, Status
from pacehound.launcher.watch import Outcome, Plan, Watch
from pacehound.model.job_end import JOB_ENDED, JOB_FAILED, JOB_INTERRUPTED, JOB_KILLED

_LOOK_EVERY_S = 0.5
_FINISH_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the command left, and what was seen; `outcome` is `None` where it ran unwatched."""

    status: Status
    outcome: Outcome | None


def supervise(
    argv: Sequence[str],
    make_plan: Callable[[], Plan],
    instrument: Callable[[Watch], Mapping[str, str]],
    say: Callable[[str], object],
    environ: Mapping[str, str],
) -> Ended:
    """Run `argv` to its end.

    Parameters
    ----------
    argv
        The command and its arguments.
    make_plan
        Called once; whatever it or the watch raises costs one line, and the command runs unwatched.
    instrument
        The environment for the command, given the watch; may fail likewise.
    say
        One line for the user.
    environ
        The environment for a command that cannot be instrumented.

    Raises
    ------
    CannotStart
        The command cannot be started.

    """
    # Blocked before anything else: a signal that arrives while we set up reaches the command once it is there.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    watch: Watch | None = None
    try:
        watch = Watch(make_plan(), say, time.monotonic())
    except Exception as error:
        say(f"cannot watch this run ({type(error).__name__}: {error}); the command runs without")
    if watch is not None:
        try:
            environ = instrument(watch)
        except Exception as error:
            say(f"cannot instrument the command ({type(error).__name__}: {error}); it runs without")
    try:
        command = Command(argv, environ, mask)
    except BaseException:
        if watch is not None:
            watch.end(Status(127, None), JOB_ENDED, time.monotonic(), lambda: True)
        raise
    if watch is not None:
        try:
            watch.note_command(command.pid)
        except OSError as error:
            say(f"the agent does not know the command ({error}); it would not outlive this process for it")
    status, was_asked_to_end = _follow(command, watch, say)
    outcome = None
    if watch is not None:
        try:
            outcome = watch.end(
                status, _why_ended(status, was_asked_to_end), time.monotonic() + _FINISH_WITHIN_S, _told_to_hurry
            )
        except Exception as error:
            say(f"the watch did not end well ({type(error).__name__}: {error})")
    return Ended(status=status, outcome=outcome)


def _why_ended(status: Status, was_asked_to_end: bool) -> str:
    """What the job's hosts are told: ranks that leave because somebody asked for it are nobody's fault."""
    if was_asked_to_end and status != Status(0, None):
        return JOB_INTERRUPTED
    if status.signal_number is not None:
        return JOB_KILLED
    return JOB_FAILED if status.exit_code else JOB_ENDED


def _follow(command: Command, watch: Watch | None, say: Callable[[str], object]) -> tuple[Status, bool]:
    was_asked_to_end = False
    failed = False
    while True:
        status = command.poll()
        if status is not None:
            return status, was_asked_to_end
        if watch is not None and not failed:
            try:
                watch.ensure_running(time.monotonic())
            except Exception as error:
                failed = True
                say(f"the watch failed ({type(error).__name__}: {error}); the command runs on")
        found = signal.sigtimedwait(PASSED_ON | {signal.SIGCHLD}, _LOOK_EVERY_S)
        if found is not None and found.si_signo != signal.SIGCHLD:
            was_asked_to_end = was_asked_to_end or found.si_signo in ENDING
            command.pass_on(found.si_signo, found.si_code)


def _told_to_hurry() -> bool:
    """The command is gone and somebody wants us gone, too."""
    while (found := signal.sigtimedwait(PASSED_ON | {signal.SIGCHLD}, 0)) is not None:
        if found.si_signo in ENDING:
            return True
    return False
