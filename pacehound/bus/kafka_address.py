"""`kafka://HOST:PORT[,HOST:PORT…]`: how an endpoint says that events go to Kafka and not to a head node."""

from __future__ import annotations

import re

from pacehound.errors import InvalidSetting

SCHEME = "kafka://"

_BROKER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_HIGHEST_PORT = 65_535


def is_kafka(endpoint: str) -> bool:
    """Whether an endpoint speaks of Kafka.

    >>> is_kafka("kafka://broker:9092"), is_kafka("http://head:4318")
    (True, False)
    """
    return endpoint.strip().lower().startswith(SCHEME)


def kafka_servers(endpoint: str) -> str:
    """The brokers of an endpoint, as `kafka.servers` has them.

    Raises
    ------
    InvalidSetting
        One of them is not HOST:PORT, or there is more than brokers.

    Examples
    --------
    >>> kafka_servers("kafka://one:9092, two:9092/")
    'one:9092,two:9092'

    """
    if not is_kafka(endpoint):
        raise InvalidSetting(f"endpoint {endpoint!r} is no address of Kafka; write it as in kafka://broker:9092")
    brokers = [part.strip() for part in endpoint.strip()[len(SCHEME) :].removesuffix("/").split(",")]
    for broker in brokers:
        found = _BROKER.fullmatch(broker)
        if found is None or not 0 < int(found[1]) <= _HIGHEST_PORT:
            raise InvalidSetting(
                f"{broker!r} in endpoint {endpoint!r} is not HOST:PORT; write it as in kafka://one:9092,two:9092 "
                "(how to log in stands in the file that kafka.client_file names)"
            )
    return ",".join(brokers)
