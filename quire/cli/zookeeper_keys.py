"""Who we are for ZooKeeper, and how the connections to it are kept private: from the keys of a configuration (pure)."""

from __future__ import annotations

from typing import Protocol

from quire.metadata.zookeeper_config import Tls


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
