"""Keys of Pulsar's broker.conf about TLS between a broker and bookies.

Source: BookKeeperClientFactoryImpl.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quire.service.config import SECONDS, conf_key
from quire.world.tls_options import TlsOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTlsKeys:
    """TLS of the connections of a broker to bookies. Raises ValueError if the keys contradict each other."""

    enabled: bool = conf_key(
        "bookkeeperTLSClientAuthentication",
        False,
        doc="true: connections to bookies have TLS, and this broker shows its certificate, if it has one. Bookies "
        "without TLS are then not used.",
    )
    factory: str = conf_key(
        "bookkeeperTLSProviderFactoryClass",
        "org.apache.bookkeeper.tls.TLSContextFactory",
        doc="The class that switches TLS on. There is no other.",
    )
    key_type: str = conf_key("bookkeeperTLSKeyFileType", "PEM", doc="Type of bookkeeperTLSKeyFilePath: PEM or PKCS12.")
    key_file: str = conf_key(
        "bookkeeperTLSKeyFilePath", "", doc="PEM: the key of the certificate. PKCS12: the certificate and its key."
    )
    key_password_file: str = conf_key(
        "bookkeeperTLSKeyStorePasswordPath", "", doc="File with the password of bookkeeperTLSKeyFilePath."
    )
    certificate_file: str = conf_key(
        "bookkeeperTLSCertificateFilePath", "", doc="PEM: the certificate shown to bookies."
    )
    trust_type: str = conf_key(
        "bookkeeperTLSTrustCertTypes", "PEM", doc="Type of bookkeeperTLSTrustCertsFilePath: PEM or PKCS12."
    )
    trust_file: str = conf_key(
        "bookkeeperTLSTrustCertsFilePath",
        "",
        doc="Authorities that sign the certificates of bookies. Empty: those of the system.",
    )
    trust_password_file: str = conf_key(
        "bookkeeperTLSTrustStorePasswordPath", "", doc="File with the password of bookkeeperTLSTrustCertsFilePath."
    )
    check_host: bool = conf_key(
        "bookkeeper_tlsHostnameVerificationEnabled",
        False,
        doc="true: a bookie's certificate must have the name or address that it is connected to by.",
    )
    refresh_s: float = conf_key(
        "bookkeeperTlsCertFilesRefreshDurationSeconds",
        300,
        unit=SECONDS,
        minimum=0,
        doc="Time between two looks at the files, which happen when a connection is made. 0: they are read once.",
    )

    def __post_init__(self) -> None:
        self.options()
        if self.enabled and self.factory.rpartition(".")[2] != "TLSContextFactory":
            raise ValueError(
                f"bookkeeperTLSProviderFactoryClass={self.factory}: classes of the JVM cannot be loaded; remove the key"
            )

    @property
    def interval_s(self) -> float:
        """Return the time between two looks at the files, in seconds; inf: they are read once."""
        return self.refresh_s or math.inf

    def options(self) -> TlsOptions | None:
        """Return the options; None: there is no TLS. Raises ValueError."""
        if not self.enabled:
            return None
        try:
            return TlsOptions(
                key_type=self.key_type,
                certificate_file=self.certificate_file if self.key_type == "PEM" else "",
                key_file=self.key_file,
                key_password_file=self.key_password_file,
                trust_type=self.trust_type,
                trust_file=self.trust_file,
                trust_password_file=self.trust_password_file,
                check_host=self.check_host,
            )
        except ValueError as error:
            keys = "bookkeeperTLSCertificateFilePath, bookkeeperTLSKeyFilePath, bookkeeperTLSTrustCertTypes"
            raise ValueError(f"{keys}: {error}") from error
