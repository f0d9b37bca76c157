"""`pacehound topics`: make and check the topics on Kafka."""

from __future__ import annotations

import os

import click

from pacehound.cli.options import say, set_option
from pacehound.settings import Settings


@click.command()
@click.option("--agents", metavar="USER", help="Let this user, with whom agents log in, write what agents write.")
@set_option
def topics(agents: str | None, overrides: tuple[str, ...]) -> None:
    """Create the topics on Kafka that are missing and check those that are there, then end.

    Every process does the same when it starts; run this first where only one account may create topics.
    """
    from pacehound.bus.kafka_rights import READ_BY_AGENTS, WRITTEN_BY_AGENTS, grant_agents
    from pacehound.bus.kafka_topics import ensure_topics
    from pacehound.model.topics import TOPICS

    settings = Settings.load(os.environ, overrides).kafka
    ensure_topics(settings)
    say(f"pacehound: {len(TOPICS)} topics of {settings.prefix}* are as they should be", err=True)
    if agents:
        grant_agents(settings, agents)
        written, read = (", ".join(topic.name for topic in one) for one in (WRITTEN_BY_AGENTS, READ_BY_AGENTS))
        say(f"pacehound: user {agents!r} may write {written} and read {read}, and nothing else by this", err=True)
