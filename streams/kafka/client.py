"""What aiokafka, which Faust reads with, needs to know of `kafka.client_file`: SASL and TLS."""

from __future__ import annotations

import ssl
from typing import Any

from faust.auth import SASLCredentials, SSLCredentials

from pacehound.bus.kafka import client_config
from pacehound.errors import InvalidSetting
from pacehound.settings import KafkaSettings


def credentials_of(settings: KafkaSettings) -> Any:
    """The credentials for Faust, from the settings that librdkafka reads; `None` for plain text.

    Raises
    ------
    InvalidSetting
        The protocol is none that Faust can speak.

    """
    config = client_config(settings)
    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol == "plaintext":
        return None
    context = _tls(config) if protocol in ("ssl", "sasl_ssl") else None
    if protocol == "ssl":
        return SSLCredentials(context=context)
    if protocol in ("sasl_ssl", "sasl_plaintext"):
        return SASLCredentials(
            mechanism=config.get("sasl.mechanism", config.get("sasl.mechanisms", "PLAIN")),
            username=config.get("sasl.username", ""),
            password=config.get("sasl.password", ""),
            ssl_context=context,
        )
    raise InvalidSetting(
        f"security.protocol={protocol!r} in {settings.client_file}: use plaintext, ssl, sasl_plaintext or sasl_ssl"
    )


def _tls(config: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.get("ssl.ca.location"))
    if "ssl.certificate.location" in config:
        context.load_cert_chain(
            config["ssl.certificate.location"], config.get("ssl.key.location"), config.get("ssl.key.password")
        )
    return context
