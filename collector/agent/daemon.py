"""The node agent: one daemon per host and run. It reads what the ranks write, and sends it to a head node or Kafka.

Ranks and agent share nothing but files: a rank never waits for the agent, and the agent survives any rank.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from collector.agent.background import ThreadTaskRunner
from collector.agent.delivery import Delivery, Outcome, Sender
from collector.agent.host_watch import open_host_watch
from collector.agent.node_agent import Agent
from collector.agent.outbox import Outbox
from collector.agent.run_folder import RunFolder
from pacehound.bus.kafka_address import is_kafka, kafka_servers
from pacehound.bus.otlp import OtlpProducer
from pacehound.errors import InvalidInput
from pacehound.settings import Settings

logger = logging.getLogger("pacehound.agent")

LAST_DELIVERY_NS = 10_000_000_000
ORPHANED_NS = 10_000_000_000


def run(run_dir: Path, endpoint: str, headers: Mapping[str, str], settings: Settings) -> int:
    """Watch one run until its launcher says that it has ended, and send everything to `endpoint`.

    Blocks. SIGTERM saves, sends what it can within 10 s, and returns: an agent that is started later goes on. SIGINT
    and SIGHUP are left to the launcher, whose word about the end is still to come.

    Parameters
    ----------
    run_dir
        The run folder (collector/agent/run_folder.py).
    endpoint, headers
        The head node, as in `pacehound.bus.otlp`; or Kafka, as in `pacehound.bus.kafka_address`, without headers.
    settings
        `agent.*` and `hang.suspect_after_s` are used; with Kafka `kafka.*`, except `kafka.servers`, too.

    Returns
    -------
    int
        The exit status: 0, also when some messages could not be delivered (that is logged).

    Raises
    ------
    InvalidInput
        The folder is no run folder, another agent is at work in it, or the endpoint cannot be used.

    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line per request
    folder = RunFolder(run_dir)
    sender = open_sender(endpoint, headers, settings)
    folder.job()
    folder.lock()
    outbox = Outbox(folder.outbox, settings.agent.max_backlog_bytes)
    tasks: ThreadTaskRunner[Outcome] = ThreadTaskRunner("delivery", at_end=sender.close)
    host_watch = open_host_watch(folder.job(), settings.hang.suspect_after_s)
    agent = Agent(folder, outbox, Delivery(outbox, sender, tasks), settings, host_watch=host_watch)
    asked_to_stop = threading.Event()
    previous = {
        number: signal.signal(number, handler)
        for number, handler in (
            (signal.SIGTERM, lambda *_: asked_to_stop.set()),
            (signal.SIGINT, signal.SIG_IGN),
            (signal.SIGHUP, signal.SIG_IGN),
        )
    }
    try:
        _watch(agent, asked_to_stop, settings.agent.poll_s)
        _deliver_the_rest(agent, tasks.finished)
    finally:
        agent.let_go()
        tasks.close(wait_s=1.0)
        outbox.close()
        folder.unlock()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def open_sender(endpoint: str, headers: Mapping[str, str], settings: Settings) -> Sender:
    """Who takes messages to `endpoint`.

    Raises
    ------
    InvalidInput
        The endpoint or a setting for it cannot be used, or the package for it is not installed.

    """
    if not is_kafka(endpoint):
        return OtlpProducer(endpoint, headers)
    servers = kafka_servers(endpoint)
    try:
        from pacehound.bus.kafka_sender import KafkaSender
    except ImportError as error:
        raise InvalidInput(
            f"Kafka needs a package that is not here: pip install 'pacehound[kafka]' ({error})"
        ) from error
    return KafkaSender(replace(settings.kafka, servers=servers), "pacehound-agent")


def _watch(agent: Agent, asked_to_stop: threading.Event, poll_s: float) -> None:
    """Step until the job has ended or a SIGTERM came."""
    parent = os.getppid()
    orphaned_since_ns: int | None = None
    while not agent.has_closed and not asked_to_stop.wait(poll_s):
        now_ns = time.monotonic_ns()
        try:
            agent.step(now_ns)
        except Exception:
            agent.counts.failed_steps += 1
            if agent.counts.failed_steps <= 10:
                logger.exception("a step failed; going on")
        # A launcher that was killed cannot say that the job has ended.
        if os.getppid() == parent or agent.processes.any_alive():
            orphaned_since_ns = None
        elif orphaned_since_ns is None:
            orphaned_since_ns = now_ns
        elif now_ns - orphaned_since_ns >= ORPHANED_NS:
            agent.close(now_ns, "job killed")
    if not agent.has_closed:
        now_ns = time.monotonic_ns()
        agent.step(now_ns)
        if not agent.has_closed:
            agent.flush(now_ns)


def _deliver_the_rest(agent: Agent, answered: threading.Event) -> None:
    deadline_ns = time.monotonic_ns() + LAST_DELIVERY_NS
    while not agent.delivery.is_done and (now_ns := time.monotonic_ns()) < deadline_ns:
        answered.clear()
        agent.delivery.step(now_ns)
        answered.wait(0.05)
    if not agent.delivery.is_done:
        logger.warning("the receiver is away: some messages stay in the outbox")
