"""How a sender makes sure of the receiver: a CA has signed its certificate, or the token names that very certificate.

With the standard library alone: a training host has no package that reads certificates, and a pin needs none.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacehound.errors import InvalidSetting

CA_VARIABLE = "OTEL_EXPORTER_OTLP_CERTIFICATE"
_UNKNOWN_CA = (18, 19, 20, 21)
"""OpenSSL's numbers for a certificate that signed itself, or whose CA is not among those that are trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which certificates are a receiver's.

    Attributes
    ----------
    ca_file
        Certificates of the CAs that may sign it (PEM); empty: those that this machine trusts.
    pin
        The fingerprint of the only one that is taken, whoever signed it, for which host and until when; empty: any.

    """

    ca_file: str = ""
    pin: str = ""

    def context(self) -> ssl.SSLContext:
        """What a client connects with.

        Raises
        ------
        InvalidSetting
            The file of CAs cannot be used.

        """
        if self.pin:
            return _pinned(self.pin)
        if self.ca_file and not Path(self.ca_file).is_file():
            raise InvalidSetting(f"{CA_VARIABLE}={self.ca_file!r}: there is no such file")
        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise InvalidSetting(f"{CA_VARIABLE}={self.ca_file!r} holds no certificates of CAs: {error}") from error


MACHINE_CAS = Trust()


class WrongCertificate(ssl.SSLCertVerificationError):
    """The receiver has another certificate than the one that the token names."""


def fingerprint(certificate: bytes) -> str:
    """What a token calls a certificate (DER); `openssl x509 -fingerprint -sha256` says the same.

    >>> fingerprint(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(certificate).hexdigest()


def why_not_trusted(error: BaseException) -> str:
    """What was wrong with the receiver's TLS, where that is behind an HTTP library's error; else empty."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return ""
    if isinstance(cause, WrongCertificate):
        return str(cause)
    if isinstance(cause, ssl.SSLCertVerificationError):
        advice = "the head needs one that is valid, and made out to this address"
        if cause.verify_code in _UNKNOWN_CA:
            advice = f"name its CA in {CA_VARIABLE}, or give the whole token that its `pacehound up` printed"
        return f"its certificate is refused: {cause.verify_message}; {advice}"
    return f"no TLS with it: {cause.reason or cause}; is it a head with TLS?"


def _pinned(pin: str) -> ssl.SSLContext:
    """A context that ends the handshake, before anything is sent, with whoever has another certificate."""

    def check(certificate: bytes | None) -> None:
        seen = fingerprint(certificate or b"")
        if seen != pin:
            raise WrongCertificate(
                ssl.SSL_ERROR_SSL,
                f"its certificate is sha256:{seen}, and the token names sha256:{pin}: somebody else answers there, or"
                " the head has a new certificate; give the token that its `pacehound up` prints now",
            )

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self.getpeercert(binary_form=True))

    class PinnedObject(ssl.SSLObject):  # TLS within the TLS of a proxy
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self.getpeercert(binary_form=True))

    context: Any = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = PinnedSocket
    context.sslobject_class = PinnedObject
    return context  # type: ignore[no-any-return]
