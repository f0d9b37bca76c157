"""`pacehound actuators`: the process that decides, on Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from actuators.worker import ActuatorWorker
from pacehound.bus.kafka_reader import read_to_end
from pacehound.errors import RejectedMessage
from pacehound.model import codec
from pacehound.model.events import Decision
from pacehound.model.topics import DECISIONS, INCIDENTS
from pacehound.runtime.process import run_worker
from pacehound.settings import KafkaSettings, Settings

logger = logging.getLogger(__name__)

GROUP = "actuators"


def run(settings: Settings) -> None:
    """Decide about incidents until SIGTERM; decisions are recorded and nothing is done (observe).

    Raises
    ------
    InvalidSetting
        A setting does not fit.
    Unavailable
        A decision cannot be recorded, ever.

    """
    run_worker(
        GROUP, settings, [INCIDENTS], lambda _: ActuatorWorker(lambda partition: decisions(settings.kafka, partition))
    )


def decisions(settings: KafkaSettings, partition: int) -> Iterator[Decision]:
    """What was decided about the incidents of a partition."""
    for message in read_to_end(settings, DECISIONS, [partition]):
        try:
            for event in codec.decode(message.value):
                if isinstance(event, Decision):
                    yield event
        except RejectedMessage as error:
            logger.warning("a decision cannot be read", extra={"offset": message.offset, "error": str(error)})
