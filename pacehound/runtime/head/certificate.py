"""By what a head is known that others reach over a network: a certificate that it was given, or one of its own.

One of its own lies beside the store, so that the tokens that name it stay good when the head is started again. Nobody
signs it: whoever has the token knows it by its fingerprint, so that it needs neither a name nor an end.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from pacehound.bus.tls import fingerprint
from pacehound.errors import InvalidInput, InvalidSetting, Unavailable
from pacehound.settings import TlsSettings

FILE_NAME = "head.pem"
"""Certificate and key of its own, in a store's folder."""

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a head shows.

    Attributes
    ----------
    context
        What it listens with.
    pin
        Its fingerprint, as in a token.
    is_own
        No CA knows it.

    """

    context: ssl.SSLContext = field(repr=False)
    pin: str
    is_own: bool


def certificate_for(
    settings: TlsSettings, folder: Path, *, asked: bool | None, is_reachable: bool
) -> Certificate | None:
    """The one that was given, else one of its own; `None` where no TLS is spoken.

    Parameters
    ----------
    settings
        What was given.
    folder
        The store's.
    asked
        Whether somebody wants TLS; `None`: nobody has said.
    is_reachable
        Whether other machines reach the head, so that it speaks TLS unless somebody said no.

    Raises
    ------
    InvalidInput
        A file cannot be used, or was given for nothing.
    Unavailable
        One of its own cannot be made here.

    """
    if settings.certificate_file or settings.key_file:
        if asked is False:
            raise InvalidInput(
                f"--no-tls, and tls.certificate_file={settings.certificate_file!r}: leave one of them out, for a head "
                "without TLS shows no certificate"
            )
        return _given(settings)
    return _own(folder / FILE_NAME) if (is_reachable if asked is None else asked) else None


def refuse_other(pin: str, certificate: Certificate | None) -> None:
    """Hosts that were given the same token would send to nobody.

    Raises
    ------
    InvalidInput
        It names another certificate than this head's.

    """
    if pin and (certificate is None or pin != certificate.pin):
        seen = f"sha256:{certificate.pin}" if certificate is not None else "none, for it speaks no TLS"
        raise InvalidInput(
            f"PACEHOUND_TOKEN names the certificate sha256:{pin}, and that of this head is {seen}: "
            "leave +sha256:… out of it here, and give the hosts the line that is printed then"
        )


def _given(settings: TlsSettings) -> Certificate:
    for key, path in (("tls.certificate_file", settings.certificate_file), ("tls.key_file", settings.key_file)):
        if not path and key == "tls.key_file":
            continue  # the key is in the same file
        if not path:
            raise InvalidSetting(f"tls.key_file={settings.key_file!r}, and tls.certificate_file is empty: give both")
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise InvalidSetting(f"{key}={path!r} cannot be read: {error.strerror or error}") from error
    try:
        return _loaded(Path(settings.certificate_file), settings.key_file or None, is_own=False)
    except (OSError, ValueError) as error:
        key_file = settings.key_file or settings.certificate_file
        raise InvalidSetting(
            f"tls.certificate_file={settings.certificate_file!r} with the key in {key_file!r} cannot be used: "
            f"{_words(error)}"
        ) from error


def _own(path: Path) -> Certificate:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_made())
        with contextlib.suppress(FileExistsError):
            os.link(scratch, path)  # another head was quicker: there is one, whoever made it
        scratch.unlink()
    try:
        return _loaded(path, None, is_own=True)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{path}, the certificate of this head, cannot be used: {_words(error)}. Remove it for a new one; every "
            "host then needs the token that pacehound up prints"
        ) from error


def _loaded(certificate: Path, key_file: str | None, *, is_own: bool) -> Certificate:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key_file, password=_no_passphrase)
    text = certificate.read_text(encoding="ascii", errors="replace")
    first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
    return Certificate(context=context, pin=fingerprint(ssl.PEM_cert_to_DER_cert(first)), is_own=is_own)


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase, and nobody is there to type it")


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    if isinstance(error, ssl.SSLError):
        return f"there is no certificate, or no key, in PEM ({error.reason or error})"
    return str(error)


def _made() -> bytes:
    """A certificate for which nobody answers, and its key."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise Unavailable(
            "a certificate of its own needs a package that is not here: pip install 'pacehound[embedded]', or give "
            f"tls.certificate_file ({error})"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pacehound head")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC))  # RFC 5280: it has no end
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return certificate.public_bytes(encoding) + key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
