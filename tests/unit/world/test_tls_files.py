"""Files and options of TLS (quire/world/real_tls.py, tls_options.py): what can be read, and what is refused with the
reason."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates

from quire.world.real_tls import TlsFiles, TlsFilesError
from quire.world.tls_options import PKCS12, TlsOptions
from tests.support.certificates import Authority, Pair, options


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("localhost")


def test_the_end_of_the_own_certificate_is_known_and_changes_with_its_file(authority, pair):
    files = TlsFiles(authority.server(pair), server_side=True)
    first = load_pem_x509_certificates(pair.certificate.read_bytes())[0].not_valid_after_utc.timestamp()
    assert files.expires_at_s == first > 1_700_000_000
    authority.issue("localhost", expired=True)
    assert files.refresh()
    assert files.expires_at_s == 1577836800.0, "2020-01-01"
    assert TlsFiles(authority.client(), server_side=False).expires_at_s == 0


def test_a_store_of_type_pkcs12_has_key_certificate_and_trust(tmp_path, authority, pair):
    key: Any = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    chain = load_pem_x509_certificates(pair.certificate.read_bytes())
    ca = load_pem_x509_certificate(authority.trust.read_bytes())
    sealed = serialization.BestAvailableEncryption(b"secret")
    store, trust, password = tmp_path / "store.p12", tmp_path / "trust.p12", tmp_path / "password"
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"one", key, chain[0], chain[1:], sealed))
    trust.write_bytes(pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca, b"ca")], sealed))
    password.write_text("secret\n")
    made = TlsOptions(
        key_type=PKCS12,
        key_file=str(store),
        key_password="secret",
        trust_type=PKCS12,
        trust_file=str(trust),
        trust_password_file=str(password),
        require_certificate=True,
    )
    context = TlsFiles(made, server_side=True).context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert [each["subject"] for each in context.get_ca_certs()] == [
        tuple(((name.rfc4514_attribute_name and _long(name), name.value),) for name in ca.subject)
    ]
    with pytest.raises(TlsFilesError, match=f"{store}.*password"):
        TlsFiles(TlsOptions(key_type=PKCS12, key_file=str(store), key_password="wrong"), server_side=True)
    with pytest.raises(TlsFilesError, match=f"{trust}: there is no key"):
        TlsFiles(TlsOptions(key_type=PKCS12, key_file=str(trust), key_password="secret"), server_side=True)
    assert "secret" not in repr(made)


def _long(name) -> str:
    return {"O": "organizationName", "OU": "organizationalUnitName", "CN": "commonName"}[name.rfc4514_attribute_name]


def test_an_encrypted_key_needs_its_password(tmp_path, authority, pair):
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    sealed = serialization.BestAvailableEncryption(b"secret")
    encrypted = Pair(pair.certificate, tmp_path / "encrypted.pem")
    encrypted.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed))
    TlsFiles(options(encrypted, trust=None, key_password="secret"), server_side=True)
    with pytest.raises(TlsFilesError, match="encrypted, and there is no password"):
        TlsFiles(options(encrypted, trust=None), server_side=True)
    with pytest.raises(TlsFilesError, match="not a certificate with its key"):
        TlsFiles(options(encrypted, trust=None, key_password="wrong"), server_side=True)


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda ca, pair: pair.key.unlink(), "server.key.pem: cannot be read: No such file"),
        (lambda ca, pair: pair.key.write_text("x"), "server.key.pem: not a certificate with its key"),
        (lambda ca, pair: pair.certificate.write_text(""), "server.cert.pem and .*: not a certificate"),
        (lambda ca, pair: pair.key.write_bytes(ca.issue("a", file="other").key.read_bytes()), "key values mismatch"),
        (lambda ca, pair: ca.trust.write_text("x"), "ca.pem: there is no certificate in it"),
        (lambda ca, pair: ca.trust.unlink(), "ca.pem: cannot be read"),
        (
            lambda ca, pair: ca.trust.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"),
            "ca.pem: not certificates in PEM",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(authority, pair, break_it, reason):
    made = options(pair, trust=authority.trust)
    files = TlsFiles(made, server_side=True)
    before = files.context
    break_it(authority, pair)
    with pytest.raises(TlsFilesError, match=reason):
        TlsFiles(made, server_side=True)
    with pytest.raises(TlsFilesError, match=reason):
        files.refresh()
    assert files.context is before


def test_files_as_they_were_give_no_new_context(authority, pair):
    files = TlsFiles(options(pair, trust=authority.trust), server_side=True)
    before = files.context
    assert not files.refresh()
    assert files.context is before
    Authority(authority.trust.parent)  # another authority in the same file
    assert files.refresh()
    assert files.context is not before


def test_a_server_requests_certificates_only_if_it_can_verify_them(authority, pair):
    def mode(**more: object) -> ssl.VerifyMode:
        return TlsFiles(options(pair, **{"trust": authority.trust, **more}), server_side=True).context.verify_mode

    assert mode() is ssl.CERT_OPTIONAL
    assert mode(require_certificate=True) is ssl.CERT_REQUIRED
    assert mode(verify=False) is ssl.CERT_NONE
    assert mode(trust=None) is ssl.CERT_NONE


def test_a_client_verifies_certificate_and_host_unless_told_not_to(authority):
    context = TlsFiles(authority.client(), server_side=False).context
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    context = TlsFiles(authority.client(check_host=False), server_side=False).context
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    context = TlsFiles(authority.client(verify=False), server_side=False).context
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_versions_before_1_2_are_never_spoken(pair):
    context = TlsFiles(options(pair, trust=None), server_side=True).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(ValueError, match=r"TLSv1.1 is not supported; allow TLSv1.2 or TLSv1.3"):
        TlsOptions(versions=("TLSv1.2", "TLSv1.1"))


def test_cipher_suites_are_known_by_both_names(pair):
    suites = ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-CHACHA20-POLY1305")
    context = TlsFiles(options(pair, trust=None, ciphers=suites), server_side=True).context
    names = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert names == ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"]
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2, "no suite of TLS 1.3 is allowed"
    all_of_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
    context = TlsFiles(options(pair, trust=None, ciphers=all_of_1_3), server_side=True).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(ValueError, match="all or not at all; add TLS_AES_256_GCM_SHA384, TLS_CHACHA20"):
        TlsOptions(ciphers=("TLS_AES_128_GCM_SHA256",))
    for unknown in (("TLS_ECDHE_RSA_WITH_NOTHING",), ("AES128-SHA", "NOTHING-AT-ALL")):
        with pytest.raises(ValueError, match="known"):
            TlsFiles(options(pair, trust=None, ciphers=unknown), server_side=True)
    with pytest.raises(ValueError, match="no allowed version"):
        TlsFiles(options(pair, trust=None, versions=("TLSv1.3",), ciphers=suites), server_side=True)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"key_type": "JKS"}, "keytool -importkeystore"),
        ({"trust_type": "JKS"}, "keytool -importkeystore"),
        ({"trust_type": "BKS"}, "type BKS cannot be read; use PKCS12 or PEM"),
        ({"key_file": "k"}, "a TLS certificate needs its key"),
        ({"certificate_file": "c"}, "a TLS certificate needs its key"),
        ({"require_certificate": True}, "no file has the authorities"),
        ({"require_certificate": True, "trust_file": "t", "verify": False}, "set one of both"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, reason):
    with pytest.raises(ValueError, match=reason):
        TlsOptions(**given)


def test_a_server_needs_a_certificate():
    with pytest.raises(ValueError, match="a server needs a TLS certificate"):
        TlsFiles(TlsOptions(), server_side=True)


def test_a_file_that_is_too_large_is_not_read(tmp_path, authority, pair):
    with authority.trust.open("r+b") as file:
        file.truncate(1 << 30)
    with pytest.raises(TlsFilesError, match="above 16777216 bytes"):
        TlsFiles(options(pair, trust=authority.trust), server_side=True)
