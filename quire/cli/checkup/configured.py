"""The parts of a configuration file that `quire doctor` examines: folders, ports, certificates, the metadata store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from quire.metadata.zookeeper.config import ZooKeeperConfig
from quire.service.properties import Grammar, read_properties
from quire.world.tls_options import TlsOptions


class Server(Enum):
    """A kind of server, by its configuration file."""

    STANDALONE = "standalone"
    BROKER = "broker"
    BOOKIE = "bookie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """One configuration."""

    server: Server
    journals: tuple[str, ...] = ()
    ledgers: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    """Folders of a bookie, one of indexes for each of ledgers; empty: it has none."""
    ports: tuple[tuple[str, str, int], ...] = ()
    """Key, address and number of each."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the file by key, as they stand in it."""
    usage_full: float = 1.0
    usage_warn: float = 1.0
    """Thresholds of the used fraction of a ledger folder's disk."""
    metadata: ZooKeeperConfig | None = None
    metadata_name: str = ""
    ledgers_root: str = "/ledgers"
    """Root of ledgers and bookies in the metadata store."""
    shown: TlsOptions | None = None
    """Options with the certificate that is shown to web ports of bookies; None: there is none."""


def kind_of(conf: Path) -> Server:
    """Return the kind of server that a file is for, by its name: broker.conf, standalone.conf, else a bookie's."""
    for kind in (Server.STANDALONE, Server.BROKER):
        if kind.value in conf.name:
            return kind
    return Server.BOOKIE


def read(conf: Path, server: Server) -> Configured:
    """Read a configuration file with the rules of a start. Raises ConfigError, ValueError."""
    if server is Server.BOOKIE:
        return _bookie(conf)
    from quire.servers.broker.config import BROKER
    from quire.servers.standalone.config import STANDALONE

    values = {each.name: each.value for each in read_properties(conf, Grammar.JAVA)}
    if server is Server.STANDALONE:
        listen = STANDALONE.load(conf).listen
        metadata, shown = None, None
    else:
        config = BROKER.load(conf)
        listen = config.listen
        metadata, shown = config.metadata.stores()[0], config.ledger_tls.options()
    named = (
        ("brokerServicePort", listen.broker_port),
        ("brokerServicePortTls", listen.broker_port_tls),
        ("webServicePort", listen.web_port),
        ("webServicePortTls", listen.web_port_tls),
    )
    return Configured(
        server=server,
        ports=tuple((key, listen.bind_address, number) for key, number in named if number),
        values=values,
        metadata=metadata,
        metadata_name=values.get("metadataStoreUrl", values.get("zookeeperServers", "")),
        shown=shown if shown is not None and shown.identity else None,
    )


def _bookie(conf: Path) -> Configured:
    from quire.servers.bookie.config import BOOKIE
    from quire.servers.bookie.located import located, zookeeper_config

    loaded = BOOKIE.load(conf)
    metadata, root = zookeeper_config(loaded)
    config = located(loaded, root)
    ports = [("bookiePort", "0.0.0.0", loaded.bookie.port)]
    if config.http.enabled:
        ports.append(("httpServerPort", config.http.host, config.http.port))
    values = {each.name: each.value for each in read_properties(conf, Grammar.COMMONS)}
    # As a client of other bookies it has the certificate of tlsKeyStore, as auto recovery has; else its web port's own.
    client = loaded.tls.client()
    shown = client if client is not None and client.identity else config.http.tls()
    return Configured(
        server=Server.BOOKIE,
        usage_full=config.bookie.disk_usage_threshold,
        usage_warn=config.bookie.warn_threshold,
        journals=config.bookie.journal_directories,
        ledgers=config.bookie.ledger_directories,
        indexes=config.bookie.indexes,
        ports=tuple(each for each in ports if each[2]),
        values=values,
        metadata=metadata if loaded.metadata.metadata_service else None,
        metadata_name=loaded.metadata.metadata_service,
        ledgers_root=root,
        shown=shown,
    )
