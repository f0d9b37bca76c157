"""Which operator works on a key."""

from __future__ import annotations

from pacehound.model import topics
from pacehound.model.shards import HOME_KEY, RELAYED_KEY, SHARD_KEY
from pacehound.settings import Settings
from streams.job.stage_two import StageTwo
from streams.rounds.home import Home
from streams.rounds.shard import Shard
from streams.rounds.stage_one import StageOne

Operator = StageOne | Shard | Home | StageTwo


def operator_of(topic: str, key: str, settings: Settings) -> Operator:
    """That of a key of a topic, with nothing heard yet.

    >>> from pacehound.settings import Settings
    >>> keys = [("calls", "3e8a"), ("calls", "shard:j/0/3"), ("calls", "home:j/0/3"), ("hosts", "host:j/h")]
    >>> [type(operator_of(*key, Settings())).__name__ for key in keys]
    ['StageOne', 'Shard', 'Home', 'StageOne']
    >>> [type(operator_of("rounds", key, Settings())).__name__ for key in ("j", "relayed:j/0/3")]
    ['StageTwo', 'Shard']

    """
    if topic == topics.ROUNDS.name:
        return Shard(settings) if key.startswith(RELAYED_KEY) else StageTwo(key, settings)
    if topic == topics.CALLS.name and key.startswith(HOME_KEY):
        return Home(settings)
    if topic == topics.CALLS.name and key.startswith(SHARD_KEY):
        return Shard(settings)
    return StageOne(settings)
