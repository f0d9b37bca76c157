"""`pacehound actuators`: the process that decides, on Kafka."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from actuators.attendant import Attendant
from actuators.deciders import rules_of, survivors_by
from actuators.job_prices import JobPrices
from actuators.modes import Modes
from actuators.recovering import Asks, recovery_by
from actuators.site_folder import NAME as SITE
from actuators.site_folder import SiteFolder
from actuators.worker import ActuatorWorker
from pacehound.bus.kafka_commands import KafkaControl, KafkaQuestions
from pacehound.bus.kafka_reader import read_to_end
from pacehound.bus.signing import Signer, signer_of
from pacehound.clock import Clock
from pacehound.errors import RejectedMessage
from pacehound.model import codec
from pacehound.model.events import Decision
from pacehound.model.topics import DECISIONS, INCIDENTS, partition_of
from pacehound.runtime.process import Process, run_worker
from pacehound.settings import KafkaSettings, Settings

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


def _attendant(settings: Settings, folder: Path, signer: Signer, clock: Clock, prices: JobPrices) -> Attendant:
    def log(job: str) -> Iterator[Decision]:
        return decisions(settings.kafka, [partition_of(job.encode(), DECISIONS.partitions)])

    rules = replace(rules_of(settings.actuators, signer.key, SiteFolder(folder / SITE), log), measured=prices)
    return Attendant(signer, clock, lambda job: contextlib.closing(KafkaControl(settings.kafka, job)), rules)


def decisions(settings: KafkaSettings, partitions: list[int]) -> Iterator[Decision]:
    """What was decided about the incidents of these partitions."""
    for message in read_to_end(settings, DECISIONS, partitions):
        try:
            for event in codec.decode(message.value):
                if isinstance(event, Decision):
                    yield event
        except RejectedMessage as error:
            logger.warning("a decision cannot be read", extra={"offset": message.offset, "error": str(error)})
