"""Keys of BookKeeper's bk_server.conf about TLS: of a bookie, and of its clients that read the same file, which are
auto recovery and the shell.

Source: BookKeeper's TLSContextFactory and AbstractConfiguration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from quire.service.config import SECONDS, conf_key
from quire.world.tls_options import TlsOptions

FACTORY: Final = "TLSContextFactory"
"""The class that switches TLS on."""
_NO_STORE: Final = "tlsKeyStore, tlsCertificatePath: a bookie with TLS needs its certificate and key"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieTlsKeys:
    """TLS between bookies and their clients. Raises ValueError if the keys contradict each other."""

    factory: str = conf_key(
        "tlsProviderFactoryClass",
        "",
        doc="org.apache.bookkeeper.tls.TLSContextFactory: a bookie offers TLS on its port, and clients that read this "
        "file require it. Empty: there is no TLS.",
    )
    require_certificate: bool = conf_key(
        "tlsClientAuthentication",
        False,
        doc="true: a client that asks for TLS must have a certificate that tlsTrustStore trusts.",
    )
    required: bool = conf_key(
        "quireTlsRequired",
        False,
        doc="true: a client that does not begin with a request for TLS is disconnected. Original bookies serve it.",
    )
    key_type: str = conf_key(
        "tlsKeyStoreType", "JKS", doc="Type of tlsKeyStore: PEM or PKCS12. Stores of type JKS cannot be read."
    )
    key_file: str = conf_key(
        "tlsKeyStore", "", doc="PEM: the key of the certificate. PKCS12: the certificate and its key."
    )
    key_password_file: str = conf_key("tlsKeyStorePasswordPath", "", doc="File with the password of tlsKeyStore.")
    certificate_file: str = conf_key(
        "tlsCertificatePath", "", doc="PEM: the certificate, and those that lead to its authority."
    )
    trust_type: str = conf_key(
        "tlsTrustStoreType", "JKS", doc="Type of tlsTrustStore: PEM or PKCS12. Stores of type JKS cannot be read."
    )
    trust_file: str = conf_key(
        "tlsTrustStore", "", doc="Authorities that sign the certificates of clients, and for clients those of bookies."
    )
    trust_password_file: str = conf_key("tlsTrustStorePasswordPath", "", doc="File with the password of tlsTrustStore.")
    versions: tuple[str, ...] = conf_key(
        "tlsEnabledProtocols", (), doc="Versions that may be used: TLSv1.2, TLSv1.3. Empty: both."
    )
    ciphers: tuple[str, ...] = conf_key(
        "tlsEnabledCipherSuites", (), doc="Cipher suites that may be used. Empty: OpenSSL's choice."
    )
    check_host: bool = conf_key(
        "tlsHostnameVerificationEnabled",
        False,
        doc="true: clients that read this file check the name or address in a bookie's certificate.",
    )
    refresh_s: float = conf_key(
        "tlsCertFilesRefreshDurationSeconds",
        300,
        unit=SECONDS,
        minimum=0,
        doc="Time between two looks at the files, which happen when a connection gets TLS. 0: they are read once.",
    )
    handshake_timeout_s: float = conf_key(
        "startTLSTimeoutSecs", 10, unit=SECONDS, minimum=1, doc="Maximum time of a handshake."
    )

    def __post_init__(self) -> None:
        if self.required and not self.enabled:
            raise ValueError("quireTlsRequired=true needs tlsProviderFactoryClass, which switches TLS on")
        if self.enabled and self.factory.rpartition(".")[2] != FACTORY:
            raise ValueError(
                f"tlsProviderFactoryClass={self.factory}: classes of the JVM cannot be loaded; set it to "
                f"org.apache.bookkeeper.tls.{FACTORY}, or leave it empty"
            )

    @property
    def enabled(self) -> bool:
        return self.factory not in ("", "null")

    @property
    def interval_s(self) -> float:
        """Return the time between two looks at the files, in seconds; inf: they are read once."""
        return self.refresh_s or math.inf

    def server(self) -> TlsOptions | None:
        """Return the options of a bookie; None: it has no TLS. Raises ValueError."""
        if not self.enabled:
            return None
        if not self.key_file:
            raise ValueError(_NO_STORE)
        if self.require_certificate and not self.trust_file:
            raise ValueError("tlsClientAuthentication=true needs tlsTrustStore, the authorities of the clients")
        return self._options(require_certificate=self.require_certificate)

    def client(self) -> TlsOptions | None:
        """Return the options of a client of bookies; None: it has no TLS. Raises ValueError."""
        return self._options(check_host=self.check_host) if self.enabled else None

    def _options(self, *, require_certificate: bool = False, check_host: bool = True) -> TlsOptions:
        try:
            return TlsOptions(
                key_type=self.key_type if self.key_file else "PEM",
                certificate_file=self.certificate_file if self.key_type == "PEM" else "",
                key_file=self.key_file,
                key_password_file=self.key_password_file,
                trust_type=self.trust_type if self.trust_file else "PEM",
                trust_file=self.trust_file,
                trust_password_file=self.trust_password_file,
                versions=self.versions,
                ciphers=self.ciphers,
                require_certificate=require_certificate,
                check_host=check_host,
            )
        except ValueError as error:
            raise ValueError(f"tlsKeyStore, tlsKeyStoreType, tlsTrustStoreType: {error}") from error
