"""`pacehound traces`: the process that sends rounds, incidents and decisions of Kafka as traces."""

from __future__ import annotations

from pacehound.bus.kafka_reader import begin_at_end
from pacehound.errors import InvalidSetting
from pacehound.model.topics import DECISIONS, INCIDENTS, ROUNDS
from pacehound.runtime.job_traces import JobTraces, worker_of
from pacehound.runtime.process import Process, run_worker
from pacehound.settings import Settings

GROUP = "traces"
INPUTS = (ROUNDS, INCIDENTS, DECISIONS)


def run(settings: Settings) -> None:
    """`pacehound traces`: send those of the jobs on Kafka until SIGTERM.

    Raises
    ------
    InvalidSetting
        There is nobody to take them, or a setting does not fit.

    """
    if not settings.traces.endpoint:
        raise InvalidSetting("nobody takes traces: set traces.endpoint, as in http://HOST:4318")
    made: list[JobTraces] = []

    def make(process: Process) -> JobTraces:
        for topic in INPUTS:
            begin_at_end(settings.kafka, GROUP, topic)
        made.append(worker_of(settings.traces, process.clock, process.telemetry))
        return made[0]

    try:
        run_worker(GROUP, settings, list(INPUTS), make)
    finally:
        for worker in made:
            worker.close()
