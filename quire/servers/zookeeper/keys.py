"""Where ZooKeeper is, who we are for it, and how the connections to it are kept private: from what operators say (pure)."""

from __future__ import annotations

from typing import Protocol

from quire.metadata.zookeeper.config import ConnectString, Tls, parse_connect_string
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
                f"{configuration_key}: {configuration_url} is another store, but one store has all of a cluster's metadata; "
                f"remove it, or set it to the value of {key}"
            )
    return where


class Keys(Protocol):
    """What a configuration says of it; it has checked that its keys do not contradict each other."""

    @property
    def zk_auth(self) -> str: ...
    @property
    def zk_tls(self) -> bool: ...
    @property
    def zk_tls_ca_file(self) -> str: ...
    @property
    def zk_tls_certificate_file(self) -> str: ...
    @property
    def zk_tls_key_file(self) -> str: ...


def credentials(config: Keys) -> tuple[tuple[str, str], ...]:
    """`digest:user:password` as (scheme, credential); none if there is nobody to be."""
    scheme, _, credential = config.zk_auth.partition(":")
    return ((scheme, credential),) if config.zk_auth else ()


def tls(config: Keys) -> Tls | None:
    """None: in the clear."""
    if not config.zk_tls:
        return None
    return Tls(
        ca_file=config.zk_tls_ca_file or None,
        certificate_file=config.zk_tls_certificate_file or None,
        key_file=config.zk_tls_key_file or None,
    )
