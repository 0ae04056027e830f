"""Certificates of a local cluster: an authority, and what it signs for the processes. Pure but for randomness.

Keys are of the curve P-256, because each of a dozen processes has its own, and an RSA key takes a tenth of a second.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOSTS = ("localhost", "127.0.0.1")
VALID_FOR = datetime.timedelta(days=365)
CLOCKS_DIFFER_BY = datetime.timedelta(hours=1)
"""Time before its making from which a certificate is valid."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def store(self) -> bytes:
        """Return both in one file, the form that ZooKeeper reads."""
        return self.key + self.certificate


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority. `read` takes what `issued` gave."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def make(cls, name: str, now: datetime.datetime) -> Authority:
        """Return a new authority, valid for a year."""
        key = _new_key()
        subject = _name(name)
        usage = _usage(key_cert_sign=True, crl_sign=True)
        made = (
            _builder(subject, subject, key, now - CLOCKS_DIFFER_BY, now + VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(made.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, issued: Issued) -> Authority:
        """Return the authority with this certificate and key. Raises ValueError if they are none."""
        key = serialization.load_pem_private_key(issued.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the authority is not of an elliptic curve")
        return cls(x509.load_pem_x509_certificate(issued.certificate), key)

    @property
    def issued(self) -> Issued:
        return Issued(_pem(self.certificate), _pem_key(self.key))

    def issue(self, name: str, now: datetime.datetime, *, expired: bool = False) -> Issued:
        """Return a new certificate for this machine with `name` as its common name. It serves clients and servers.

        `expired`: it was valid for a day, until a minute ago."""
        key = _new_key()
        until = now - datetime.timedelta(minutes=1) if expired else now + VALID_FOR
        since = until - datetime.timedelta(days=1) if expired else now - CLOCKS_DIFFER_BY
        made = (
            _builder(_name(name), self.certificate.subject, key, since, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([_host(each) for each in HOSTS]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        return Issued(_pem(made.sign(self.key, hashes.SHA256())), _pem_key(key))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    since: datetime.datetime,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
