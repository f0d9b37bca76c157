"""Looks at Kafka and at every process, twice, so that rates can be told."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pacehound.bus.kafka_state import KafkaState, kafka_state
from pacehound.clock import Clock
from pacehound.errors import InvalidInput, Unavailable
from pacehound.runtime.scrape import metrics_url, read, scrape
from pacehound.runtime.status import ProcessState, Scrape, Status, process_state, rows_of, targets_of
from pacehound.settings import Settings

BETWEEN_SCRAPES_S = 1.0
HEALTH_TIMEOUT_S = 2.0


def survey(
    settings: Settings,
    clock: Clock,
    wait: Callable[[float], object] = time.sleep,
    heads: Sequence[ProcessState] = (),
    token: str = "",
) -> Status:
    """The state of the pipeline, in about a second; `token` is shown to processes that ask for one.

    Raises
    ------
    InvalidInput
        There is no head, and neither `kafka.servers` nor `telemetry.targets` says whom to ask.

    """
    targets = targets_of(settings.telemetry.targets)
    if not heads and not targets and not settings.kafka.servers:
        raise InvalidInput(
            "there is nobody to ask: no head has the store open; set kafka.servers or telemetry.targets, or --store"
        )
    first = [scrape_process(target, clock, token) for target in targets]
    kafka: KafkaState | None = None
    kafka_problem = ""
    if settings.kafka.servers:
        try:
            kafka = kafka_state(settings.kafka)
        except Unavailable as error:
            kafka_problem = str(error)
    if first:
        wait(max(BETWEEN_SCRAPES_S - (clock.monotonic_s() - first[0].at_s), 0.0))
    second = [scrape_process(target, clock, token) for target in targets]
    now_s = clock.now_ns() / 1e9
    return Status(
        kafka=kafka,
        kafka_problem=kafka_problem,
        processes=(*heads, *(process_state(*scrapes, now_s) for scrapes in zip(first, second, strict=True))),
    )


def scrape_process(target: str, clock: Clock, token: str = "") -> Scrape:
    """Ask a process for its metrics and its health."""
    at_s = clock.monotonic_s()
    try:
        samples = scrape(target, token=token)
    except Unavailable as error:
        return Scrape(target=target, at_s=at_s, problem=str(error))
    return Scrape(target=target, at_s=at_s, samples=samples, problem=_complaint(target, token))


def _complaint(target: str, token: str) -> str:
    url = metrics_url(target)
    if not url.endswith("/metrics"):
        return ""
    try:
        with read(url.removesuffix("/metrics") + "/health", HEALTH_TIMEOUT_S, token):
            return ""
    except urllib.error.HTTPError as error:
        # 404: it has metrics and no health, as a head has not.
        return "" if error.code == 404 else error.read(500).decode(errors="replace").strip()
    except OSError as error:
        return f"no answer about its health: {error}"


def print_status(console: Console, status: Status) -> None:
    """One table, then what is not as it should be."""
    grid = Table(
        "what", "state", "lag", "rate", "drops", "dead letters", "last batch",
        box=None, header_style="bold", pad_edge=False,
    )  # fmt: skip
    for row in rows_of(status):
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)
    for process in status.processes:
        if process.page:
            console.print(Text(f"its page: {process.page}"), soft_wrap=True)
    for problem in status.problems:
        console.print(f"! {problem}", style="bold red")
    if not status.problems:
        console.print("all is well", style="green")
