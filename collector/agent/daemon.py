"""The node agent: one daemon per host and run. It reads what the ranks write, and sends it to a head node or Kafka.

Ranks and agent share nothing but files: a rank never waits for the agent, and the agent survives any rank.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from collector.agent.background import ThreadTaskRunner
from collector.agent.command_poll import ClosableSource, CommandPoll, HeadCommands
from collector.agent.delivery import Delivery, Outcome, Sender, deliver
from collector.agent.host_watch import open_host_watch
from collector.agent.node_agent import Agent
from collector.agent.obedience import Trusted
from collector.agent.orders import address_towards
from collector.agent.outbox import Outbox
from collector.agent.run_folder import Command, RunFolder
from collector.agent.store_sender import StoreSender
from collector.agent.successor import Successor
from collector.agent.trusted_keys import TrustedKeys
from collector.agent.waker import Waker
from collector.host.processes import read_stat
from pacehound.bus.kafka_address import is_kafka, kafka_servers
from pacehound.bus.otlp import OtlpProducer, Polled
from pacehound.bus.tls import MACHINE_CAS, Trust
from pacehound.errors import InvalidInput
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.runtime.unsent import OUTBOX_FILE, give_up, store_of
from pacehound.runtime.watched import write_watched
from pacehound.settings import Settings

logger = logging.getLogger("pacehound.agent")

LAST_DELIVERY_NS = 8_000_000_000
"""Less than `pacehound run` waits for at its end, so that it hears what became of the rest."""
ORPHANED_NS = 10_000_000_000
CALM_S = 1.0
"""While nothing is under way it looks once before each flush, and so often at least (measured: looks that find nothing
were half of what an agent of a small job took)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What an agent is told by whoever starts it.

    Attributes
    ----------
    run_dir
        The run folder (collector/agent/run_folder.py).
    endpoint, headers, trust
        The head node, as in `pacehound.bus.otlp`; or, without the others, a store on this machine, as in
        `pacehound.runtime.unsent`, or Kafka, as in `pacehound.bus.kafka_address`.
    unsent
        The folder on disk in which it keeps what is not delivered (pacehound/runtime/unsent.py); `None`: there is none,
        and that lives in memory.
    goes_to
        The receiver by the name under which others can find it again: what earlier runs could not send there goes, too.
        Empty: nobody looks for that.
    launcher_is_gone
        Whether `pacehound run` has left without a word.
    when_launcher_calls
        Has something called when `pacehound run` says something, or leaves; by any thread.

    """

    run_dir: Path
    endpoint: str
    headers: Mapping[str, str]
    unsent: Path | None
    trust: Trust = MACHINE_CAS
    goes_to: str = ""
    launcher_is_gone: Callable[[], bool] = lambda: False
    when_launcher_calls: Callable[[Callable[[], object]], object] = lambda call: None


def run(assignment: Assignment, settings: Settings) -> int:
    """Watch one run until its launcher says that it has ended, and send everything to the receiver.

    Blocks. SIGTERM saves, sends what it can within 8 s, and returns: an agent that is started later goes on. SIGINT
    and SIGHUP are left to the launcher, whose word about the end is still to come. Where the launcher has left without
    one, the agent watches on while the command or a rank of its is there.

    Parameters
    ----------
    assignment
        Which run, and where to.
    settings
        `agent.*` and `hang.suspect_after_s` are used; with Kafka `kafka.*`, except `kafka.servers`, too.

    Returns
    -------
    int
        The exit status: 0, also when some messages could not be delivered (that is logged, and told to the launcher).

    Raises
    ------
    InvalidInput
        The folder is no run folder, another agent is at work in it, or the endpoint cannot be used.

    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line per request
    folder = RunFolder(assignment.run_dir)

    def sender_of_one() -> Sender:
        return open_sender(assignment.endpoint, assignment.headers, assignment.trust, settings)

    sender = sender_of_one()
    folder.job()
    folder.lock()
    unsent = assignment.unsent
    outbox = Outbox(unsent / OUTBOX_FILE if unsent is not None else None, settings.agent.max_backlog_bytes)
    tasks: ThreadTaskRunner[Outcome] = ThreadTaskRunner("delivery", at_end=sender.close)
    host_watch = open_host_watch(folder.job(), settings.hang.suspect_after_s)
    delivery = Delivery(outbox, sender, tasks)
    waker = Waker()
    commands = open_commands(assignment, folder.job().job, settings, waker.wake)
    agent = Agent(folder, outbox, delivery, settings, host_watch=host_watch, commands=commands)
    asked_to_stop = threading.Event()

    def stop(*_: object) -> None:
        asked_to_stop.set()
        waker.wake()

    assignment.when_launcher_calls(waker.wake)
    previous = {
        number: signal.signal(number, handler)
        for number, handler in (
            (signal.SIGTERM, stop),
            (signal.SIGINT, signal.SIG_IGN),
            (signal.SIGHUP, signal.SIG_IGN),
        )
    }
    successor = Successor(assignment.goes_to, sender_of_one)
    if unsent is not None and assignment.goes_to:
        successor.start(unsent.parent)
    try:
        _watch(agent, folder, waker, asked_to_stop, settings.agent.poll_s, assignment.launcher_is_gone)
        write_watched(folder.path, agent.watched())
        deadline_ns = time.monotonic_ns() + LAST_DELIVERY_NS
        deliver(agent.delivery, tasks.finished, lambda now_ns: now_ns < deadline_ns)
        if not agent.delivery.is_done:
            logger.warning("the receiver is away: some messages stay in the outbox")
            if agent.has_closed:  # else an agent that is started later goes on
                _give_up(unsent)
        write_watched(folder.path, agent.watched())
    finally:
        successor.stop()
        agent.let_go()
        tasks.close(wait_s=1.0)
        outbox.close()
        folder.unlock()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def open_sender(endpoint: str, headers: Mapping[str, str], trust: Trust, settings: Settings) -> Sender:
    """Who takes messages to `endpoint`.

    Raises
    ------
    InvalidInput
        The endpoint or a setting for it cannot be used, or the package for it is not installed.

    """
    store = store_of(endpoint)
    if store is not None:
        return StoreSender(store)
    if not is_kafka(endpoint):
        return OtlpProducer(endpoint, headers, trust=trust)
    servers = kafka_servers(endpoint)
    try:
        from pacehound.bus.kafka_sender import KafkaSender
    except ImportError as error:
        raise InvalidInput(
            f"Kafka needs a package that is not here: pip install 'pacehound[kafka]' ({error})"
        ) from error
    return KafkaSender(replace(settings.kafka, servers=servers), "pacehound-agent")


def open_commands(
    assignment: Assignment, job: str, settings: Settings, when_asked: Callable[[], None] = lambda: None
) -> tuple[CommandPoll, Trusted, str] | None:
    """Where commands come from, whose are obeyed, and this host's address; `None` where no key is trusted.

    `when_asked` is called, by another thread, whenever somebody has answered whether there are some.

    Raises
    ------
    InvalidInput
        A key is none.

    """
    store = store_of(assignment.endpoint)
    keys = tuple(filter(None, (key.strip() for key in settings.actuators.keys.split(","))))
    if store is None and not keys:
        return None
    trusted = TrustedKeys(keys, store)
    if store is not None:
        source: ClosableSource = HeadCommands(StoreSender(store), job)
    elif is_kafka(assignment.endpoint):
        from pacehound.bus.kafka_commands import KafkaCommands

        source = KafkaCommands(replace(settings.kafka, servers=kafka_servers(assignment.endpoint)), job)
    else:
        source = HeadCommands(OtlpProducer(assignment.endpoint, assignment.headers, trust=assignment.trust), job)
    address = "127.0.0.1"
    if store is None:
        with contextlib.suppress(OSError):
            towards = assignment.endpoint
            if is_kafka(towards):
                towards = f"//{kafka_servers(towards).split(',')[0]}"
            address = address_towards(urlsplit(towards).hostname or address)
    tasks: ThreadTaskRunner[Polled | None] = ThreadTaskRunner("commands", at_end=source.close, when_done=when_asked)
    return CommandPoll(source, tasks), trusted, address


def _watch(
    agent: Agent,
    folder: RunFolder,
    waker: Waker,
    asked_to_stop: threading.Event,
    poll_s: float,
    launcher_is_gone: Callable[[], bool],
) -> None:
    """Step until the job has ended or a SIGTERM came."""
    idle_since_ns: int | None = None
    wait_s = poll_s
    while not agent.has_closed and not asked_to_stop.is_set():
        asleep_s = time.monotonic()
        if waker.wait(wait_s, agent.descriptors) and not agent.heed(time.monotonic_ns()):
            asked_to_stop.wait(max(0.0, poll_s - (time.monotonic() - asleep_s)))  # whoever calls all the time
        if asked_to_stop.is_set():
            break
        now_ns = time.monotonic_ns()
        wait_s = poll_s
        try:
            agent.step(now_ns)
            wait_s = max(poll_s, min(agent.may_wait_s(now_ns), CALM_S))
        except Exception:
            agent.counts.failed_steps += 1
            if agent.counts.failed_steps <= 10:
                logger.exception("a step failed; going on")
        # A launcher that was killed cannot say that the job has ended; its job may well go on.
        if not launcher_is_gone() or agent.processes.any_alive() or _is_there(folder.command()):
            idle_since_ns = None
        elif idle_since_ns is None:
            idle_since_ns = now_ns
        elif now_ns - idle_since_ns >= ORPHANED_NS:
            agent.close(now_ns, "job ended")
    if not agent.has_closed:
        now_ns = time.monotonic_ns()
        agent.step(now_ns)
        if not agent.has_closed:
            agent.flush(now_ns)


def _is_there(command: Command | None) -> bool:
    if command is None:
        return False
    try:
        stat = read_stat(command.pid)
    except (OSError, ValueError):
        return False
    return stat is not None and stat.start_ticks == command.start_ticks and stat.state != "exited"


def _give_up(unsent: Path | None) -> None:
    """The rest is a successor's: the next run's agent, or `pacehound flush`."""
    if unsent is not None:
        try:
            give_up(unsent, time.time_ns())
        except (OSError, *UNREADABLE_JSON) as error:
            logger.warning("%s cannot be marked as left behind: %s", unsent, error)
