"""Keys of Pulsar's broker.conf about TLS: of the ports of a broker, and of its connections to other brokers and to
bookies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quire.service.config import SECONDS, conf_key
from quire.world.tls_options import PEM, TlsOptions

JKS_REFUSED = "Stores of type JKS cannot be read: convert them to PKCS12."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTlsKeys:
    """TLS of the two ports that have it. Raises ValueError if the keys contradict each other."""

    certificate_file: str = conf_key(
        "tlsCertificateFilePath", "", doc="Certificate of the server, and those that lead to its authority, in PEM."
    )
    key_file: str = conf_key("tlsKeyFilePath", "", doc="Key of the certificate, in PEM, not encrypted.")
    trust_file: str = conf_key(
        "tlsTrustCertsFilePath",
        "",
        doc="Authorities that sign the certificates of clients, in PEM. Empty: clients are not asked for certificates.",
    )
    insecure: bool = conf_key(
        "tlsAllowInsecureConnection",
        False,
        doc="true: clients are not asked for certificates, so that any client may connect, and none is identified by "
        "its certificate.",
    )
    require_certificate: bool = conf_key(
        "tlsRequireTrustedClientCertOnConnect", False, doc="true: a client without a trusted certificate is refused."
    )
    versions: tuple[str, ...] = conf_key(
        "tlsProtocols", (), doc="Versions that clients may use: TLSv1.2, TLSv1.3. Empty: both."
    )
    ciphers: tuple[str, ...] = conf_key(
        "tlsCiphers", (), doc="Cipher suites that clients may use, by their registered names. Empty: OpenSSL's choice."
    )
    web_versions: tuple[str, ...] = conf_key(
        "webServiceTlsProtocols", (), doc="As tlsProtocols, for webServicePortTls. Empty: as tlsProtocols."
    )
    web_ciphers: tuple[str, ...] = conf_key(
        "webServiceTlsCiphers", (), doc="As tlsCiphers, for webServicePortTls. Empty: as tlsCiphers."
    )
    refresh_s: float = conf_key(
        "tlsCertRefreshCheckDurationSec",
        300,
        unit=SECONDS,
        minimum=0,
        doc="Time between two looks at the files of TLS. A look happens when a connection is made; changed files hold "
        "for new connections. 0: a look for each connection.",
    )
    with_stores: bool = conf_key(
        "tlsEnabledWithKeyStore", False, doc="true: certificate, key and authorities are in tlsKeyStore, tlsTrustStore."
    )
    key_store_type: str = conf_key("tlsKeyStoreType", "JKS", doc=f"Type of tlsKeyStore. {JKS_REFUSED}")
    key_store: str = conf_key("tlsKeyStore", "", doc="Store with the certificate of the server and its key.")
    key_store_password: str = conf_key("tlsKeyStorePassword", "", doc="Password of tlsKeyStore.", secret=True)
    trust_store_type: str = conf_key("tlsTrustStoreType", "JKS", doc=f"Type of tlsTrustStore. {JKS_REFUSED}")
    trust_store: str = conf_key(
        "tlsTrustStore",
        "",
        doc="Store with the authorities that sign the certificates of clients. Empty: as tlsTrustCertsFilePath.",
    )
    trust_store_password: str = conf_key("tlsTrustStorePassword", "", doc="Password of tlsTrustStore.", secret=True)

    def options(self, *, web: bool = False) -> TlsOptions:
        """Return the options of the port of the binary protocol, or of the web port. Raises ValueError."""
        files = _Files(
            "tls",
            self.with_stores,
            (self.certificate_file, self.key_file, self.trust_file),
            (self.key_store_type, self.key_store, self.key_store_password),
            (self.trust_store_type, self.trust_store, self.trust_store_password),
        )
        if not files.certificate:
            raise ValueError(f"{files.names[0]}, {files.names[1]}: a port with TLS needs them")
        if self.require_certificate and not files.trust:
            raise ValueError(
                f"tlsRequireTrustedClientCertOnConnect=true needs {files.names[2]}, the authorities of the clients"
            )
        if self.require_certificate and self.insecure:
            raise ValueError(
                "tlsRequireTrustedClientCertOnConnect=true contradicts tlsAllowInsecureConnection=true; use one"
            )
        return files.options(
            verify=not self.insecure,
            require_certificate=self.require_certificate,
            versions=(web and self.web_versions) or self.versions,
            ciphers=(web and self.web_ciphers) or self.ciphers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientTlsKeys:
    """TLS of the connections of a broker to other brokers."""

    enabled: bool = conf_key(
        "brokerClientTlsEnabled",
        False,
        doc="true: this broker uses the ports with TLS of the others. Required if one of its own ports without TLS is "
        "missing.",
    )
    trust_file: str = conf_key(
        "brokerClientTrustCertsFilePath",
        "",
        doc="Authorities that sign the certificates of other brokers, in PEM. Empty: those of the system.",
    )
    certificate_file: str = conf_key(
        "brokerClientCertificateFilePath", "", doc="Certificate shown to other brokers, in PEM. Empty: none."
    )
    key_file: str = conf_key("brokerClientKeyFilePath", "", doc="Key of that certificate, in PEM.")
    check_host: bool = conf_key(
        "tlsHostnameVerificationEnabled",
        True,
        doc="true: another broker's certificate must have the name or address that it is connected to by.",
    )
    versions: tuple[str, ...] = conf_key(
        "brokerClientTlsProtocols", (), doc="Versions to other brokers: TLSv1.2, TLSv1.3. Empty: both."
    )
    ciphers: tuple[str, ...] = conf_key(
        "brokerClientTlsCiphers", (), doc="Cipher suites to other brokers. Empty: OpenSSL's choice."
    )
    with_stores: bool = conf_key(
        "brokerClientTlsEnabledWithKeyStore",
        False,
        doc="true: certificate, key and authorities are in brokerClientTlsKeyStore and brokerClientTlsTrustStore.",
    )
    key_store_type: str = conf_key("brokerClientTlsKeyStoreType", "JKS", doc=f"Type of the store. {JKS_REFUSED}")
    key_store: str = conf_key(
        "brokerClientTlsKeyStore", "", doc="Store with the certificate shown to other brokers, and its key."
    )
    key_store_password: str = conf_key("brokerClientTlsKeyStorePassword", "", doc="Password of the store.", secret=True)
    trust_store_type: str = conf_key("brokerClientTlsTrustStoreType", "JKS", doc=f"Type of the store. {JKS_REFUSED}")
    trust_store: str = conf_key(
        "brokerClientTlsTrustStore", "", doc="Store with the authorities that sign certificates of brokers."
    )
    trust_store_password: str = conf_key(
        "brokerClientTlsTrustStorePassword", "", doc="Password of the store.", secret=True
    )

    def options(self) -> TlsOptions | None:
        """Return the options; None: other brokers are reached without TLS. Raises ValueError."""
        if not self.enabled:
            return None
        files = _Files(
            "brokerClientTls",
            self.with_stores,
            (self.certificate_file, self.key_file, self.trust_file),
            (self.key_store_type, self.key_store, self.key_store_password),
            (self.trust_store_type, self.trust_store, self.trust_store_password),
        )
        return files.options(check_host=self.check_host, versions=self.versions, ciphers=self.ciphers)


class _Files:
    """Files of one side: three in PEM, or two stores."""

    def __init__(
        self,
        beginning: str,
        with_stores: bool,
        pem: tuple[str, str, str],
        key_store: tuple[str, str, str],
        trust_store: tuple[str, str, str],
    ) -> None:
        self._stores = (key_store, trust_store) if with_stores else None
        self._pem = pem
        if with_stores:
            self.certificate, self.trust = bool(key_store[1]), bool(trust_store[1])
            self.names: tuple[str, str, str] = (
                f"{beginning}KeyStore",
                f"{beginning}KeyStorePassword",
                f"{beginning}TrustStore",
            )
        else:
            self.certificate, self.trust = bool(pem[0] and pem[1]), bool(pem[2])
            self.names = ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath")
            if beginning == "brokerClientTls":
                first = "brokerClient"
                self.names = (f"{first}CertificateFilePath", f"{first}KeyFilePath", f"{first}TrustCertsFilePath")

    def options(self, **more: Any) -> TlsOptions:
        """Return options with these files. ValueError names the keys."""
        if self._stores is None:
            certificate, key, trust = self._pem
            return naming(
                ", ".join(self.names[:2]),
                lambda: TlsOptions(certificate_file=certificate, key_file=key, trust_file=trust, **more),
            )
        (key_type, key, password), (trust_type, trust, trust_password) = self._stores
        return naming(
            f"{self.names[0]}Type, {self.names[2]}Type",
            lambda: TlsOptions(
                key_type=key_type if key else PEM,
                key_file=key,
                key_password=password,
                trust_type=trust_type if trust else PEM,
                trust_file=trust,
                trust_password=trust_password,
                **more,
            ),
        )


def naming(keys: str, make: Callable[[], TlsOptions]) -> TlsOptions:
    """Return `make()`. ValueError has the keys at its begin."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{keys}: {error}") from error
