"""What a head is given to be known by, what it makes itself, and what it says of files that will not do."""

from __future__ import annotations

import re
import socket
import stat
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from pacehound.bus.tls import fingerprint
from pacehound.cli.up import ready_words
from pacehound.errors import InvalidInput
from pacehound.runtime.head.certificate import FILE_NAME, Certificate, certificate_for, refuse_other
from pacehound.settings import TlsSettings

NOTHING_GIVEN = TlsSettings()
PAGE = "http://127.0.0.1:4319/#token=t"


@pytest.fixture(scope="module")
def leaf() -> trustme.LeafCert:
    return trustme.CA().issue_cert("head.example")


@pytest.fixture
def files(leaf: trustme.LeafCert, tmp_path: Path) -> tuple[str, str]:
    """Certificate with its chain, and key."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return str(certificate), str(key)


def found(settings: TlsSettings, folder: Path, *, asked: bool | None = None, is_reachable: bool = True) -> Certificate:
    certificate = certificate_for(settings, folder, asked=asked, is_reachable=is_reachable)
    assert certificate is not None
    return certificate


def refused(settings: TlsSettings, folder: Path) -> str:
    with pytest.raises(InvalidInput) as error:
        certificate_for(settings, folder, asked=None, is_reachable=True)
    return str(error.value)


@pytest.mark.parametrize(
    ("asked", "is_reachable", "speaks_tls"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_a_head_that_other_machines_reach_speaks_tls_unless_somebody_says_no(
    asked: bool | None, is_reachable: bool, speaks_tls: bool, tmp_path: Path
) -> None:
    certificate = certificate_for(NOTHING_GIVEN, tmp_path, asked=asked, is_reachable=is_reachable)
    assert (certificate is not None) == speaks_tls == (tmp_path / FILE_NAME).exists()


def test_a_certificate_of_its_own_survives_a_restart_and_is_read_by_its_user_alone(tmp_path: Path) -> None:
    store = tmp_path / "new"
    first = found(NOTHING_GIVEN, store)
    assert first.is_own
    assert [path.name for path in store.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((store / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert found(NOTHING_GIVEN, store).pin == first.pin
    assert found(NOTHING_GIVEN, tmp_path / "other").pin != first.pin


def test_one_of_its_own_that_is_damaged_is_not_replaced_without_a_word(tmp_path: Path) -> None:
    found(NOTHING_GIVEN, tmp_path)
    path = tmp_path / FILE_NAME
    path.write_text(path.read_text()[:200])
    said = refused(NOTHING_GIVEN, tmp_path)
    assert str(path) in said
    assert "Remove it for a new one" in said
    assert len(path.read_text()) == 200


def test_a_given_certificate_is_taken_with_its_key_in_the_same_file_or_another(
    files: tuple[str, str], leaf: trustme.LeafCert, tmp_path: Path
) -> None:
    apart = found(TlsSettings(certificate_file=files[0], key_file=files[1]), tmp_path, is_reachable=False)
    (tmp_path / "all.pem").write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
    together = found(TlsSettings(certificate_file=str(tmp_path / "all.pem")), tmp_path)
    assert not apart.is_own
    assert apart.pin == together.pin
    assert re.fullmatch("[0-9a-f]{64}", apart.pin)
    assert apart.pin != fingerprint(b"")
    assert not (tmp_path / FILE_NAME).exists()


def test_files_that_will_not_do_are_refused_by_name_and_reason(
    files: tuple[str, str], leaf: trustme.LeafCert, tmp_path: Path
) -> None:
    certificate, key = files
    other, text, locked = (str(tmp_path / name) for name in ("other.pem", "text.pem", "locked.pem"))
    Path(other).write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    Path(text).write_text("no PEM at all")
    loaded = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    Path(locked).write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    )
    missing, folder = str(tmp_path / "missing.pem"), str(tmp_path)
    for certificate_file, key_file, words in (
        (missing, key, ("tls.certificate_file", missing, "No such file")),
        (certificate, missing, ("tls.key_file", missing, "No such file")),
        (folder, key, ("tls.certificate_file", folder, "Is a directory")),
        ("", key, ("tls.certificate_file", "is empty")),
        (certificate, other, (certificate, other, "the key is not that of the certificate")),
        (certificate, "", (certificate, "there is no certificate, or no key")),
        (text, key, (text, "there is no certificate, or no key")),
        (certificate, locked, (locked, "passphrase")),
    ):
        said = refused(TlsSettings(certificate_file=certificate_file, key_file=key_file), tmp_path)
        assert [word for word in words if word not in said] == [], said


def test_a_certificate_that_nobody_would_be_shown_is_refused(files: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--no-tls"):
        certificate_for(TlsSettings(certificate_file=files[0]), tmp_path, asked=False, is_reachable=True)


def test_a_token_that_names_another_certificate_is_refused_by_the_head_that_was_given_it(tmp_path: Path) -> None:
    certificate = found(NOTHING_GIVEN, tmp_path)
    refuse_other("", certificate)
    refuse_other(certificate.pin, certificate)
    for shown in (certificate, None):
        with pytest.raises(InvalidInput, match="sha256:00"):
            refuse_other("0" * 64, shown)


def test_the_line_for_the_hosts_names_a_certificate_of_its_own_and_repeats_no_token_that_was_given(
    files: tuple[str, str], tmp_path: Path
) -> None:
    own = found(NOTHING_GIVEN, tmp_path)
    given = found(TlsSettings(certificate_file=files[0], key_file=files[1]), tmp_path)
    url = "https://head:4318"
    assert f"PACEHOUND_TOKEN=made+sha256:{own.pin} pacehound run --endpoint {url}" in ready_words(
        url, PAGE, "made", "", own
    )
    said = ready_words(url, PAGE, "s3cret", "s3cret", own)
    assert f"PACEHOUND_TOKEN=…+sha256:{own.pin} " in said
    assert "s3cret" not in said
    assert "PACEHOUND_TOKEN=made pacehound" in ready_words(url, PAGE, "made", "", given)


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "[::]"])
def test_a_head_that_listens_everywhere_is_told_by_its_hosts_name(everywhere: str) -> None:
    """Nobody reaches it at the address that it listens on."""
    said = ready_words(f"https://{everywhere}:4318", PAGE, "made", "", None)
    assert f"--endpoint https://{socket.gethostname()}:4318 " in said
