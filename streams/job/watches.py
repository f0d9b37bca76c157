"""Everything that is looked for in a job, in one place."""

from __future__ import annotations

from collections.abc import Iterator

from pacehound.settings import Settings
from streams.hang.exits import ExitWatch
from streams.hang.hang_watch import HangWatch
from streams.hang.shared_name import SharedName
from streams.hang.silent_hosts import SilenceWatch
from streams.hang.unseen_libraries import UnseenCalls
from streams.level.since_start import SinceStart
from streams.slow.always.always_slow import AlwaysSlowWatch
from streams.slow.base_times import base_times
from streams.slow.slow_rounds import SlowRounds
from streams.slow.slow_watch import SlowWatch
from streams.watching.watch import Watch
from streams.whatif.price_watch import PriceWatch


class Watches:
    """The watches of one attempt of a job, in the order in which they are asked.

    A new one is written in the room whose evidence it uses, and gets a line here; its state gets one in
    `streams/snapshots/schema.py`. What one needs of another is handed to it here.
    """

    def __init__(self, job: str, attempt: int, settings: Settings) -> None:
        self.shared_name = SharedName(job, attempt)
        self.hang = HangWatch(job, attempt, settings.hang)
        self.slow_rounds = SlowRounds(job, attempt, base_times(settings.slow.base_times))
        self.slow = SlowWatch(job, attempt, settings.slow.min_change, self.slow_rounds, self.hang)
        always = AlwaysSlowWatch(job, attempt, settings.slow.min_change, settings.incidents.min_duration_s, self.slow)
        self.since_start = SinceStart(job, attempt, settings.slow.min_change, (self.slow, always))
        self._all: tuple[Watch, ...] = (
            SilenceWatch(job, attempt),
            UnseenCalls(job, attempt),
            self.shared_name,
            self.hang,
            ExitWatch(job, attempt, self.hang),
            self.slow_rounds,
            self.slow,
            always,
            self.since_start,
            PriceWatch(job, attempt, settings.ops.window_steps, (self.slow, always), self.slow),
        )

    def __iter__(self) -> Iterator[Watch]:
        return iter(self._all)

    def hearing(self) -> list[Watch]:
        """Those that hear anything at all, in the same order: a job says hundreds of things a second."""
        return self._that_override("hear")

    def following(self) -> list[Watch]:
        """Those that look at iterations, of which a small job has hundreds a second."""
        return self._that_override("on_iteration")

    def _that_override(self, name: str) -> list[Watch]:
        return [watch for watch in self if getattr(type(watch), name, None) is not getattr(Watch, name)]
