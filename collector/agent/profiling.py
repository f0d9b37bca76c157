"""A closer look for a while, by order: at the machine, at what the ranks do, and at the times of their calls.

It ends by itself: whoever looks is told until when, and each process that times its calls knows so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from collector.agent.control_block import ControlBlock
from collector.host.rank_process import RankProcess
from pacehound.model.orders import Profile

LookClosely = Callable[[int, Sequence[int], str, int], None]
"""As `HostWatch.look_closely`."""

AskForCalls = Callable[[int, int], None]
"""As `CallAssembler.ask_for_kept`."""


class Profiling:
    """Of one host.

    Parameters
    ----------
    open_block
        The control block of a process, or why there is none.
    look_closely
        `None` where nobody looks at the machine.
    ask_for_calls
        Lets those be told that stand behind digests.

    """

    def __init__(
        self,
        open_block: Callable[[RankProcess], ControlBlock | str],
        look_closely: LookClosely | None,
        ask_for_calls: AskForCalls,
    ) -> None:
        self._open_block = open_block
        self._look_closely = look_closely
        self._ask_for_calls = ask_for_calls

    def begin(self, what: Profile, timing_id: int, processes: Iterable[RankProcess], why: str, now_ns: int) -> None:
        """Look until the time is over.

        Parameters
        ----------
        what
            For how long.
        timing_id
            Names the timing of calls; never used before.
        processes
            At whom.
        why
            Told with what is seen.
        now_ns
            Monotonic time.

        """
        looked_at = list(processes)
        if not looked_at:
            return
        until_ns = now_ns + what.for_ms * 1_000_000
        self._ask_for_calls(until_ns, now_ns)
        for process in looked_at:
            block = self._open_block(process)
            if isinstance(block, str):
                continue  # its calls are timed anyway (torch.distributed on the CPU), or cannot be
            if what.for_ms:
                block.time_calls(timing_id, until_ns=until_ns)
            else:
                block.stop_timing()
        if self._look_closely is not None:
            attempt = max(process.attempt for process in looked_at)
            self._look_closely(attempt, sorted(process.rank for process in looked_at), why, until_ns)
