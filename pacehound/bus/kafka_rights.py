"""What an agent may do on Kafka: write the topics of its own, read the commands for it, and nothing else."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from pacehound.bus.kafka import client_config
from pacehound.bus.kafka_errors import ConnectionErrors, code_of
from pacehound.errors import InvalidInput
from pacehound.model.topics import CALLS, COMMANDS, HOSTS, OPS, RESULTS
from pacehound.settings import KafkaSettings

WRITTEN_BY_AGENTS = (CALLS, HOSTS, OPS, RESULTS)
READ_BY_AGENTS = (COMMANDS,)
"""Whoever may write it may only try: commands are signed."""


def grant_agents(settings: KafkaSettings, user: str, timeout_s: float = 30.0) -> None:
    """Let a user write what agents write, and read what they read.

    Rights that are there stay; where nothing is granted, a broker refuses.

    Parameters
    ----------
    settings
        Of an account that may alter the cluster.
    user
        As it logs in, without `User:`.
    timeout_s
        Within which a broker must answer.

    Raises
    ------
    Unavailable
        No broker answers, or it refuses.
    InvalidInput
        The brokers look at no rights: granting some would protect nothing.

    """
    errors = ConnectionErrors()
    admin = errors.client(client_config(settings))
    rights = [
        AclBinding(
            ResourceType.TOPIC,
            settings.prefix + topic.name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,  # which lets it describe the topic, too
            AclPermissionType.ALLOW,
        )
        for operation, topics in ((AclOperation.WRITE, WRITTEN_BY_AGENTS), (AclOperation.READ, READ_BY_AGENTS))
        for topic in topics
    ]
    try:
        for future in admin.create_acls(rights, request_timeout=timeout_s).values():
            future.result()
    except KafkaException as error:
        if code_of(error) == KafkaError.SECURITY_DISABLED:
            raise InvalidInput(
                f"the brokers at {settings.servers} look at no rights, so that {user!r} can be given none: set "
                "authorizer.class.name and a login (docs/operating.md)"
            ) from error
        raise errors.unavailable(admin, settings.servers, error) from error
