"""`pacehound demo --serve`: simulated jobs without end, watched by a head of their own, for its page."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pacehound.cli.options import say
from pacehound.clock import Clock, SystemClock
from pacehound.errors import Unavailable
from pacehound.model import codec
from pacehound.model.routing import Event
from pacehound.runtime.embedded import Page, run_head
from pacehound.runtime.feed import due_ns
from pacehound.runtime.head.owner import Owner
from pacehound.runtime.head.serve import Listeners
from pacehound.settings import Settings

if TYPE_CHECKING:
    from collector.agent.store_sender import StoreSender
    from simulator.spec import JobSpec

logger = logging.getLogger(__name__)

ITERATIONS = 600
"""Of a job: more than a minute, a third of it slow."""
SLOTS = (("pretrain", 32), ("finetune", 8), ("distil", 16))
"""Jobs at a time: what their names begin with, and their ranks."""
_MOST_AT_ONCE = 256


def serve_demo(settings: Settings, folder: Path, page: Page) -> None:
    """Serve the page over a store in `folder`, and feed its head, until somebody ends it."""
    stopping = threading.Event()
    feeders = [
        threading.Thread(target=_feed, args=(folder, slot, stopping), name=f"demo-{slot}") for slot in range(len(SLOTS))
    ]

    def on_ready(owner: Owner) -> None:
        say(f"pacehound: simulated jobs come and go; end it with Ctrl-C\npacehound: the page: {owner.page}", err=True)
        for feeder in feeders:
            feeder.start()

    try:
        run_head(
            settings=settings, folder=folder, listeners=Listeners(address=None), page=page, recording=None,
            on_ready=on_ready,
        )  # fmt: skip
    finally:
        stopping.set()
        for feeder in feeders:
            if feeder.ident is not None:
                feeder.join()


def jobs_of(slot: int, clock: Clock) -> Iterator[tuple[JobSpec, bool]]:
    """The jobs of a slot one after the other, and whether each is played at its own pace: the first is over already."""
    from simulator.job import simulate
    from simulator.suites.demo_load import demo_job

    name, ranks = SLOTS[slot]
    for turn in itertools.count():
        start_s = clock.now_ns() // 10**9
        spec = demo_job(
            slot + turn, name=f"{name}-{turn}", ranks=ranks, iterations=ITERATIONS, start_unix_ns=start_s * 10**9
        )
        if turn:
            yield spec, True
            continue
        took_s = int(simulate(spec).iteration_times_s.sum()) + 1
        yield replace(spec, start_unix_ns=(start_s - took_s) * 10**9), False


def _feed(folder: Path, slot: int, stopping: threading.Event) -> None:
    from collector.agent.store_sender import StoreSender
    from simulator.job import simulate

    sender, clock = StoreSender(folder), SystemClock()
    try:
        for spec, is_paced in jobs_of(slot, clock):
            _play(simulate(spec).events(), sender, clock, stopping, is_paced=is_paced)
            if stopping.is_set():
                return
    except Unavailable as error:
        if not stopping.is_set():
            logger.warning("the head takes no simulated jobs any more: %s", error)
    finally:
        sender.close()


def _play(
    events: Iterable[Event], sender: StoreSender, clock: Clock, stopping: threading.Event, *, is_paced: bool
) -> None:
    """Send events as an agent would: none before its time, those that are due together."""
    waiting: list[bytes] = []
    for event in events:
        wait_ns = due_ns(event) - clock.now_ns() if is_paced else 0
        if wait_ns > 0 or len(waiting) >= _MOST_AT_ONCE:
            if waiting:
                sender.send(waiting)
                waiting = []
            if wait_ns > 0:
                stopping.wait(wait_ns / 1e9)
        if stopping.is_set():
            return
        waiting.append(codec.encode(event))
    if waiting:
        sender.send(waiting)
