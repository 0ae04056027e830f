"""Settings of TLS: files of certificates and keys, what is verified, which versions and ciphers are allowed (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""Versions that may be allowed, the oldest first."""
_SUITES_OF_1_3: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Files and rules of one side. ValueError with the remedy if they contradict each other."""

    key_type: str = PEM
    """PEM: `certificate_file` has the chain and `key_file` the key. PKCS12: `key_file` has both."""
    certificate_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    key_password_file: str = ""
    """File whose first line is the password; counts before `key_password`."""
    trust_type: str = PEM
    trust_file: str = ""
    """Certificates of the authorities whose peers are trusted. Empty: a client trusts those of the system, and a server
    requests no certificates."""
    trust_password: str = field(default="", repr=False)
    trust_password_file: str = ""
    verify: bool = True
    """False: any peer is accepted, and none is identified."""
    require_certificate: bool = False
    """Server: a client without a trusted certificate is refused."""
    check_host: bool = True
    """Client: the server's certificate must have the name or address that was connected to."""
    versions: tuple[str, ...] = ()
    """Allowed versions; empty: all of VERSIONS."""
    ciphers: tuple[str, ...] = ()
    """Allowed cipher suites by their registered names, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, or OpenSSL's;
    empty: OpenSSL's choice."""

    def __post_init__(self) -> None:
        for kind in (self.key_type, self.trust_type):
            if kind not in (PEM, PKCS12):
                raise ValueError(store_problem(kind))
        if self.key_type == PEM and bool(self.certificate_file) != bool(self.key_file):
            raise ValueError("a TLS certificate needs its key, and a key its certificate")
        for version in self.versions:
            if version not in VERSIONS:
                raise ValueError(f"{version} is not supported; allow {' or '.join(VERSIONS)}")
        if self.require_certificate and not self.trust_file:
            raise ValueError("client certificates are required, but no file has the authorities that sign them")
        if self.require_certificate and not self.verify:
            raise ValueError("client certificates are required, but untrusted ones are to be accepted; set one of both")
        chosen = _SUITES_OF_1_3.intersection(self.ciphers)
        if chosen and chosen != _SUITES_OF_1_3:
            missing = ", ".join(sorted(_SUITES_OF_1_3 - chosen))
            raise ValueError(f"the suites of TLS 1.3 are allowed all or not at all; add {missing}, or leave them out")

    @property
    def identity(self) -> bool:
        """Return whether there is a certificate to show."""
        return bool(self.key_file)

    @property
    def allowed_versions(self) -> tuple[str, ...]:
        """Return the allowed versions, the oldest first: those of `versions` that have an allowed cipher suite."""
        allowed = [version for version in VERSIONS if not self.versions or version in self.versions]
        if self.ciphers and not _SUITES_OF_1_3.intersection(self.ciphers):
            allowed = [version for version in allowed if version != "TLSv1.3"]
        if self.ciphers and not self.old_ciphers:
            allowed = [version for version in allowed if version == "TLSv1.3"]
        if not allowed:
            raise ValueError("no allowed version of TLS has one of the allowed cipher suites; allow more of either")
        return tuple(allowed)

    @property
    def old_ciphers(self) -> tuple[str, ...]:
        """Return the allowed suites of TLS 1.2, by OpenSSL's names."""
        return tuple(openssl_name(each) for each in self.ciphers if each not in _SUITES_OF_1_3)


def store_problem(kind: str) -> str:
    """Return why stores of a type cannot be read, with the remedy."""
    if kind == "JKS":
        return (
            "key stores of type JKS cannot be read; convert the file with `keytool -importkeystore -srckeystore FILE "
            "-destkeystore FILE.p12 -deststoretype PKCS12`, and set the type to PKCS12"
        )
    return f"key stores of type {kind} cannot be read; use {PKCS12} or {PEM}"


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2; other names as they are.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    'ECDHE-RSA-AES256-GCM-SHA384'
    >>> openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA256"), openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")
    ('AES128-SHA256', 'ECDHE-ECDSA-CHACHA20-POLY1305')
    """
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, cipher = suite.removeprefix("TLS_").split("_WITH_", 1)
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.removesuffix("_SHA256") if "CHACHA20" in cipher else cipher
    name = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return name.replace("_", "-")
