"""`pacehound simulate`: simulated jobs on Kafka."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from pacehound.cli.options import log_to_stderr, say, set_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings


@click.command()
@click.option("--ranks", type=click.IntRange(8), default=8, show_default=True, help="Ranks of a job, a multiple of 4.")
@click.option("--iterations", type=click.IntRange(120), default=600, show_default=True, help="Steps of a job.")
@click.option("--jobs", type=click.IntRange(0), default=1, show_default=True, help="How many, in turn; 0: without end.")
@click.option("--name", default="simulated", show_default=True, help="What the names of the jobs begin with.")
@click.option("--fast", is_flag=True, help="As fast as Kafka takes it, as if the job had just ended.")
@set_option
def simulate(ranks: int, iterations: int, jobs: int, name: str, fast: bool, overrides: tuple[str, ...]) -> None:
    """Put simulated training jobs on Kafka, in real time: a slow rank, a slow link, a healthy one, and so on.

    They look to the pipeline as jobs do whose hosts run an agent.
    """
    from itertools import count, islice

    from pacehound.bus.kafka import KafkaProducer
    from pacehound.bus.kafka_topics import ensure_topics
    from pacehound.runtime.feed import feed
    from pacehound.runtime.process import started, when_available
    from simulator.job import simulate as simulated
    from simulator.suites.demo_load import demo_job

    log_to_stderr()
    if ranks % 4:
        raise InvalidInput(f"--ranks {ranks} is no multiple of 4")
    settings = Settings.load(os.environ, overrides)
    with started("simulate", settings) as process:
        if not when_available(process, lambda: ensure_topics(settings.kafka, timeout_s=10.0)):
            return
        producer = KafkaProducer(settings.kafka, "simulate")
        try:
            for number in islice(count(), jobs or None):
                start_s = process.clock.now_ns() // 10**9
                spec = demo_job(
                    number,
                    name=f"{name}-{start_s}-{number}",
                    ranks=ranks,
                    iterations=iterations,
                    start_unix_ns=start_s * 10**9,
                )
                simulation = simulated(spec)
                if fast:
                    duration_s = int(simulation.iteration_times_s.sum()) + 1
                    simulation = simulated(replace(spec, start_unix_ns=(start_s - duration_s) * 10**9))
                sent = feed(
                    simulation.events(),
                    producer,
                    process.clock,
                    process.liveness,
                    process.stopping,
                    is_paced=not fast,
                )
                producer.flush(60.0)
                say(f"pacehound: {spec.job}: {sent} events", err=True)
                if process.stopping.is_set():
                    return
        finally:
            producer.close()
