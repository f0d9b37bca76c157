"""What an agent may do on Kafka: write the topics of its own, and nothing else."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from pacehound.bus.kafka import client_config
from pacehound.bus.kafka_errors import ConnectionErrors, code_of
from pacehound.errors import InvalidInput
from pacehound.model.topics import CALLS, HOSTS, OPS
from pacehound.settings import KafkaSettings

WRITTEN_BY_AGENTS = (CALLS, HOSTS, OPS)


def grant_agents(settings: KafkaSettings, user: str, timeout_s: float = 30.0) -> None:
    """Let a user write what agents write. Rights that are there stay; where nothing is granted, a broker refuses.

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
            AclOperation.WRITE,  # which lets it describe the topic, too
            AclPermissionType.ALLOW,
        )
        for topic in WRITTEN_BY_AGENTS
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
