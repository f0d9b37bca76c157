"""Simulated jobs put on Kafka, one after the other, at the pace at which their agents would."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from bench.rig.flushes import together
from bench.rig.from_log import Versions
from pacehound.bus.kafka import KafkaProducer
from pacehound.clock import SystemClock
from pacehound.model.events import Incident
from pacehound.model.flushes import Flush
from pacehound.model.topology import Layout
from pacehound.runtime.feed import feed
from pacehound.runtime.liveness import Liveness
from pacehound.settings import KafkaSettings, Settings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from streams.pipeline import Pipeline


@dataclass
class SimulatedLoad:
    """A thread that puts one job after the other on Kafka, and knows what must become of them.

    Attributes
    ----------
    ranks
        Of each job; a multiple of four.
    rows
        By job, how many calls.
    incidents
        What one process concludes from the same events.

    """

    kafka: KafkaSettings
    seed: int
    ranks: int
    rows: Counter[str] = field(default_factory=Counter)
    incidents: Versions = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with the first job."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, within_s: float = 600.0) -> None:
        """Let the job that is going on come to its end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(within_s)
            assert not self._thread.is_alive(), f"the load did not end within {within_s} s"

    def _run(self) -> None:
        producer = KafkaProducer(self.kafka, "simulator")
        number = 0
        while not self._stopping.is_set():
            spec = simulated_job(self.ranks, self.seed, number, start_unix_ns=(int(time.time()) + 2) * 1_000_000_000)
            events = list(together(simulate(spec).events()))
            pipeline = Pipeline(Settings())
            for event in events:
                if isinstance(event, Flush):
                    self.rows[event.job] += len(event)
                for out in pipeline.on_event(event):
                    if isinstance(out, Incident):
                        self.incidents[out.id, out.version] = out
            feed(events, producer, SystemClock(), Liveness(SystemClock(), 1e9), threading.Event(), is_paced=True)
            number += 1
        producer.flush(300)
        producer.close()


def simulated_job(ranks: int, seed: int, number: int, *, start_unix_ns: int) -> JobSpec:
    """Ranks on two hosts, or on hosts of eight, of which one becomes slow, for long enough to be named."""
    slow = random.Random(f"{seed} {number}").randrange(ranks)
    return JobSpec(
        layout=Layout(tp=2, dp=ranks // 4, pp=2),
        iterations=80,
        micro_batches=2,
        tp_calls=1,
        ranks_per_host=min(ranks // 2, 8),
        source=DEVICE_TIMES,
        faults=(SlowCompute(ranks=(slow,), factor=2.5, from_step=36),),
        seed=number,
        job=f"simulated {number}",
        start_unix_ns=start_unix_ns,
    )
