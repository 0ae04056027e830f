"""Keys of the addresses of ZooKeeper, the credentials for it and the encryption of its connections, and what they mean
(pure)."""

from __future__ import annotations

from dataclasses import dataclass

from quire.metadata.zookeeper.config import ConnectString, SessionExpiredPolicy, Tls, parse_connect_string
from quire.service.config import conf_key
from quire.service.errors import ConfigError

PULSAR_PREFIX = "metadata-store:"
"""Prefix of a metadataServiceUri in the form of Pulsar's bookies; a metadataStoreUrl follows."""


def pulsar_store(url: str, configuration_url: str, *, key: str, configuration_key: str) -> ConnectString:
    """Return the single store of a cluster's metadata, the same in both keys if both are set.

    The key names are those of the operator's file. Raises ConfigError, InvalidConnectStringError."""
    where = parse_connect_string(url)
    if where.names_ledgers:
        raise ConfigError(f"{key}: {url} is not of the form zk:host:2181,host:2181/chroot")
    if configuration_url:
        other = parse_connect_string(configuration_url)
        if (set(other.servers), other.chroot) != (set(where.servers), where.chroot):
            raise ConfigError(
                f"{configuration_key}: {configuration_url} is another store, but one store has all of a cluster's "
                f"metadata; remove it, or set it to the value of {key}"
            )
    return where


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperKeys:
    """Keys of every server that connects to ZooKeeper. ValueError if they contradict each other."""

    expired_policy: str = conf_key(
        "zookeeperSessionExpiredPolicy",
        "reconnect",
        choices=("reconnect", "shutdown"),
        doc="After the session in ZooKeeper has expired: reconnect registers the server again, shutdown ends "
        "it (exit code 1 of a broker, 3 of a bookie or of auto recovery).",
    )
    secure: bool = conf_key(
        "zkEnableSecurity", False, doc="true: nodes give all rights to their creator, and read to all others."
    )
    auth: str = conf_key(
        "quireZooKeeperAuth", "", doc="Credentials for ZooKeeper: digest:user:password. Empty: none.", secret=True
    )
    tls: bool = conf_key(
        "quireZooKeeperTls",
        False,
        doc="true: connections to ZooKeeper are encrypted, and its servers must present a certificate for their names.",
    )
    tls_ca_file: str = conf_key(
        "quireZooKeeperTlsCaFile",
        "",
        doc="PEM file of the authorities that sign those certificates. Empty: the authorities that the system trusts.",
    )
    tls_certificate_file: str = conf_key(
        "quireZooKeeperTlsCertificateFile", "", doc="PEM file of the certificate for servers that request one."
    )
    tls_key_file: str = conf_key(
        "quireZooKeeperTlsKeyFile", "", doc="PEM file of the key of that certificate; set both or none."
    )

    def __post_init__(self) -> None:
        if self.auth and self.auth.count(":") < 2:
            raise ValueError("quireZooKeeperAuth: not of the form digest:user:password")
        if not self.tls and (self.tls_ca_file or self.tls_certificate_file or self.tls_key_file):
            raise ValueError(
                "quireZooKeeperTls is false, and the files named beside it would not be used: set it to true"
            )
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise ValueError("quireZooKeeperTlsCertificateFile and quireZooKeeperTlsKeyFile go together")

    @property
    def credentials(self) -> tuple[tuple[str, str], ...]:
        """`digest:user:password` as (scheme, credential); none if there are none."""
        scheme, _, credential = self.auth.partition(":")
        return ((scheme, credential),) if self.auth else ()

    @property
    def tls_settings(self) -> Tls | None:
        """Return the TLS settings; None: no encryption."""
        if not self.tls:
            return None
        return Tls(
            ca_file=self.tls_ca_file or None,
            certificate_file=self.tls_certificate_file or None,
            key_file=self.tls_key_file or None,
        )

    @property
    def policy(self) -> SessionExpiredPolicy:
        return SessionExpiredPolicy(self.expired_policy)
