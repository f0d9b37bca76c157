"""`pacehound actuators`: the process that decides, on Kafka."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from actuators.attendant import Attendant, Rules
from actuators.job_prices import JobPrices
from actuators.modes import Modes
from actuators.recovering import Asks, recovery_by
from actuators.recovery.restorer import load
from actuators.recovery_orders import RecoveryOrders
from actuators.site_commands import Log, SiteCommands
from actuators.site_folder import NAME as SITE
from actuators.site_folder import SiteFolder
from actuators.worker import ActuatorWorker
from pacehound.bus.control import AskedWire
from pacehound.bus.kafka_commands import KafkaControl, KafkaQuestions
from pacehound.bus.kafka_reader import read_to_end
from pacehound.bus.signing import Keys, Signer, signer_of
from pacehound.clock import Clock
from pacehound.errors import RejectedMessage
from pacehound.model import codec
from pacehound.model.events import Decision
from pacehound.model.topics import DECISIONS, INCIDENTS, partition_of
from pacehound.runtime.process import Process, run_worker
from pacehound.settings import ActuatorSettings, KafkaSettings, Settings

logger = logging.getLogger(__name__)

GROUP = "actuators"


def run(settings: Settings, folder: Path, asks: Asks | None = None) -> None:
    """Decide about incidents until SIGTERM; in mode `observe` decisions are recorded and nothing is done.

    Parameters
    ----------
    settings
        Where Kafka is, and the mode.
    folder
        Whose key signs orders; agents have to trust it (`actuators.keys`).
    asks
        Asks the store for past failures, and for what jobs have taken so far; without one both are assumed.

    Raises
    ------
    InvalidSetting
        A setting does not fit.
    Unavailable
        A decision cannot be recorded, ever.

    """
    acts = Modes.of_settings(settings.actuators.mode, settings.actuators.modes).acts
    with contextlib.ExitStack() as open_until_the_end:

        def worker(process: Process) -> ActuatorWorker:
            attendant, survivors = None, None
            if acts:
                signer = _signer(folder)
                attendant = _attendant(settings, folder, signer, process.clock, JobPrices(asks, process.clock))
                wire = KafkaQuestions(settings.kafka, process.clock)
                open_until_the_end.callback(wire.close)
                survivors = survivors_by(settings, signer, process.clock, wire, asks)
            return ActuatorWorker(
                lambda partition: decisions(settings.kafka, [partition]),
                attendant,
                recovery_by(settings.recovery, asks),
                lambda partitions: decisions(settings.kafka, sorted(partitions)),
                survivors,
            )

        run_worker(GROUP, settings, [INCIDENTS], worker)


def _signer(folder: Path) -> Signer:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    signer = signer_of(folder)
    logger.info("orders are signed with the key %s; agents need it in actuators.keys", signer.key)
    return signer


def survivors_by(
    settings: Settings, signer: Signer, clock: Clock, wire: AskedWire, asks: Asks | None
) -> RecoveryOrders:
    """Who answers ranks that have lost some and ask which plan to go on with; ordered in mode `auto` alone."""
    modes = Modes.of_settings(settings.actuators.mode, settings.actuators.modes)
    if modes.acts:
        threading.Thread(target=load, name="load solver", daemon=True).start()  # survivors wait for two seconds
    return RecoveryOrders(wire, signer, clock, modes, asks, settings.recovery)


def _attendant(settings: Settings, folder: Path, signer: Signer, clock: Clock, prices: JobPrices) -> Attendant:
    def log(job: str) -> Iterator[Decision]:
        return decisions(settings.kafka, [partition_of(job.encode(), DECISIONS.partitions)])

    rules = replace(rules_of(settings.actuators, signer.key, SiteFolder(folder / SITE), log), measured=prices)
    return Attendant(signer, clock, lambda job: contextlib.closing(KafkaControl(settings.kafka, job)), rules)


def rules_of(settings: ActuatorSettings, own_key: str, folder: SiteFolder, log: Log | None = None) -> Rules:
    """What the settings say: who signs with `own_key`, or one of `actuators.keys`, may say yes.

    Commands of the site are run from `folder`; by `log` it is known who runs which, where there are several workers.

    Raises
    ------
    InvalidSetting
        One of them does not fit.

    """
    keys = Keys([own_key, *filter(None, map(str.strip, settings.keys.split(",")))])
    SiteCommands(settings)  # what cannot be taken apart into words is said at once
    return Rules(
        modes=Modes.of_settings(settings.mode, settings.modes),
        trusts=keys.have_signed,
        site=lambda: SiteCommands(settings, folder, log),
        noted=folder.noted,
    )


def decisions(settings: KafkaSettings, partitions: list[int]) -> Iterator[Decision]:
    """What was decided about the incidents of these partitions."""
    for message in read_to_end(settings, DECISIONS, partitions):
        try:
            for event in codec.decode(message.value):
                if isinstance(event, Decision):
                    yield event
        except RejectedMessage as error:
            logger.warning("a decision cannot be read", extra={"offset": message.offset, "error": str(error)})
