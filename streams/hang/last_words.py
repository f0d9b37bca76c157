"""How a process ended, by its signal and its last words: for a fault of its own, or for somebody else."""

from __future__ import annotations

import re
import signal

from pacehound.model.events import ProcessState

CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})

OWN_FAULT = frozenset({signal.SIGKILL, *CRASHES})
"""Signals that only strike the process that they are meant for. An abort may be a watchdog's, for a peer's fault."""

_LOST_A_PEER = re.compile(
    r"Connection closed by peer \[|(?:Read|Write) error \[[^\]]*\]:\d|failed on SocketImpl|Connection was likely closed"
    r"|remote process exit|successfully reached monitoredBarrier, but"
)
"""What gloo, torch's store and NCCL (ncclRemoteError) say where the process at the other end has gone.

Not what any connection says: a rank whose data set or storage has closed one fails by itself.
"""

_WAITED_IN_VAIN = re.compile(
    r"Timed out waiting \d+ms for (?:send|recv)|collective operation timeout|failed to pass monitoredBarrier"
)
"""What gloo, the watchdog of NCCL and torch's barrier say where a call was given up."""


def says_a_peer_is_gone(process: ProcessState) -> bool:
    """By its last words, whatever ended it."""
    return _LOST_A_PEER.search(process.detail) is not None


def has_lost_a_peer(process: ProcessState) -> bool:
    """By its own last words it fails because somebody else has gone.

    >>> lost = "RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.1]:29500"
    >>> has_lost_a_peer(ProcessState(rank=0, pid=1, state="exited", since_ns=0, exit_code=1, detail=lost))
    True
    """
    return process.signal not in OWN_FAULT and says_a_peer_is_gone(process)


def has_left_for_others(process: ProcessState) -> bool:
    """It was waiting when it failed: for somebody who has gone, or did not come.

    >>> vain = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 40000ms for recv operation to complete"
    >>> has_left_for_others(ProcessState(rank=0, pid=1, state="exited", since_ns=0, exit_code=1, detail=vain))
    True
    """
    waited = _WAITED_IN_VAIN.search(process.detail) is not None
    return has_lost_a_peer(process) or (waited and process.signal not in OWN_FAULT)
