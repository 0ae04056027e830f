"""Certificates that a configuration names: their end, their keys, and the permissions of these. Blocking."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from quire.cli.checkup import verdicts
from quire.cli.checkup.verdicts import CheckResult

FILES: Final = (
    "tlsCertificateFilePath",
    "tlsTrustCertsFilePath",
    "brokerClientCertificateFilePath",
    "brokerClientTrustCertsFilePath",
    "bookkeeperTLSCertificateFilePath",
    "bookkeeperTLSTrustCertsFilePath",
    "tlsCertificatePath",
    "tlsTrustStore",
    "quireZooKeeperTlsCertificateFile",
    "quireZooKeeperTlsCaFile",
    "httpServerTrustStorePath",
    "httpServerKeyStorePath",
)
"""Keys of files with certificates."""
KEYS: Final = {
    "tlsKeyFilePath": "tlsCertificateFilePath",
    "brokerClientKeyFilePath": "brokerClientCertificateFilePath",
    "bookkeeperTLSKeyFilePath": "bookkeeperTLSCertificateFilePath",
    "tlsKeyStore": "tlsCertificatePath",
    "quireZooKeeperTlsKeyFile": "quireZooKeeperTlsCertificateFile",
}
"""Keys of files with private keys, each with that of its certificate."""
STORES: Final = (".p12", ".pfx", ".pkcs12", ".jks")
_REMEDY: Final = "Correct the path, or the file: certificates are PEM"


def examine(values: Mapping[str, str], now: datetime.datetime) -> Iterator[CheckResult]:
    """Yield the verdicts about all files that the values of a configuration name."""
    for key in FILES:
        if path := values.get(key, ""):
            yield from of_file(Path(path), now, f"{key}=")
    for key, partner in KEYS.items():
        if (path := values.get(key, "")) and not path.endswith(STORES):
            yield from _of_key(key, Path(path), values.get(partner, ""))


def of_file(path: Path, now: datetime.datetime, key: str = "") -> Iterator[CheckResult]:
    """Yield a verdict about each certificate in a file."""
    if path.suffix in STORES:
        yield verdicts.warning(
            "certificates",
            f"{key}{path} is a store and was not examined",
            f"Examine it: keytool -list -v -keystore {path}, or openssl pkcs12",
        )
        return
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        yield verdicts.bad("certificates", f"{key}{path} cannot be read: {error}", _REMEDY)
        return
    for each in found:
        yield of_certificate(f"{key}{path}", each, now)


def of_certificate(file: str, found: x509.Certificate, now: datetime.datetime) -> CheckResult:
    """Return the verdict about one certificate."""
    end = found.not_valid_after_utc
    subject = found.subject.rfc4514_string() or "no subject"
    return verdicts.certificate(file, subject, (end - now).total_seconds(), end.isoformat())


def _of_key(key: str, path: Path, certificate: str) -> Iterator[CheckResult]:
    try:
        private = serialization.load_pem_private_key(path.read_bytes(), None)
        mode = path.stat().st_mode
    except TypeError:
        return  # it has a password, which is not asked for here
    except (OSError, ValueError) as error:
        yield verdicts.bad("certificates", f"{key}={path} cannot be read: {error}", "Correct the path, or the file")
        return
    if mode & 0o004:
        yield verdicts.warning(
            "certificates",
            f"{key}={path} may be read by every user",
            f"chmod o-rwx {path}; replace the key if it is old",
        )
    try:
        public = x509.load_pem_x509_certificate(Path(certificate).read_bytes()).public_key()
    except (OSError, ValueError):
        return  # reported with the certificate
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != public.public_bytes(*form):
        yield verdicts.bad(
            "certificates",
            f"{key}={path} is not the key of {certificate}",
            "Put the pair that was issued together there",
        )
